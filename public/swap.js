/** Bringing what is shown up to date under its reader’s eyes. */

/**
 * Puts elements into a container in the place of those that are there. What is the same is left alone, and what its reader has done
 * stays done: what was unfolded, how far it was scrolled, where the focus is.
 */
export function swap(container, ...nodes) {
  const fresh = nodes.flat().filter((node) => node !== undefined);
  fresh.forEach((node, at) => {
    const old = container.children[at];
    if (!old) {
      container.append(node);
      return;
    }
    const scrolled = carry(old, node);
    if (old.isEqualNode(node)) return;
    const path = pathTo(old, document.activeElement);
    old.replaceWith(node);
    for (const [element, left] of scrolled) element.scrollLeft = left;
    path?.reduce((element, index) => element?.children[index], node)?.focus({ preventScroll: true });
  });
  while (container.children.length > fresh.length) container.lastElementChild.remove();
}

/** Unfolds what was unfolded. What was scrolled has to be in the document for that. */
function carry(old, node) {
  if (old.tagName !== node.tagName) return [];
  if (old.open) node.open = true;
  const below = [...node.children].flatMap((child, at) => (old.children[at] ? carry(old.children[at], child) : []));
  return old.scrollLeft > 0 ? [[node, old.scrollLeft], ...below] : below;
}

function pathTo(ancestor, element) {
  if (!ancestor.contains(element)) return undefined;
  const path = [];
  for (let at = element; at !== ancestor; at = at.parentElement)
    path.unshift([...at.parentElement.children].indexOf(at));
  return path;
}
