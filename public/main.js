/**
 * The page's frame: which view is shown, by the address' fragment. `#try/job_9f…` is the view "try", told "job_9f…".
 *
 * A view is a module under views/ and a line in VIEWS. It exports
 *
 * - `title`, the text of its link;
 * - `create()`, which answers `{ element, show(rest), hide() }`. `show` is called whenever the fragment names the view, with what
 *   stands behind its name ("" if nothing does), and `hide` when another one is shown: from then on it asks the server nothing.
 *
 * A view is made when it is first wanted, and kept: what was typed into it is still there on the way back.
 */
import { h } from "./dom.js";
import * as operateView from "./views/operate.js";
import * as tryView from "./views/try.js";
import * as watchView from "./views/watch.js";

const VIEWS = { try: tryView, watch: watchView, operate: operateView };

const main = document.querySelector("main");
const made = new Map();
let shown;

const links = Object.entries(VIEWS).map(([name, { title }]) => h("a", { href: `#${name}` }, title));
document.querySelector("nav").append(...links);

function route() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const wanted = Object.hasOwn(VIEWS, name) ? name : Object.keys(VIEWS)[0];
  if (!made.has(wanted)) {
    const view = VIEWS[wanted].create();
    made.set(wanted, view);
    main.append(view.element);
  }
  if (shown !== wanted) change(wanted);
  made.get(wanted).show(wanted === name ? rest.join("/") : "");
}

function change(wanted) {
  for (const [name, { element, hide }] of made) {
    element.hidden = name !== wanted;
    if (name === shown) hide();
  }
  for (const link of links) {
    if (link.hash === `#${wanted}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[wanted].title} · Spillway`;
  // Whoever cannot see that the page is another one is taken there; not at the beginning, where nobody has asked for it.
  if (shown !== undefined) main.focus();
  shown = wanted;
}

// By hand, because a fragment is a view here, and that of the job in front of the user would be lost.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

addEventListener("hashchange", route);
route();
