/**
 * Puts the page together: public/ and, beside it, the JavaScript client as apps have it, in build/page, which wrangler.toml
 * names as the Worker's static assets. Nothing is bundled or renamed: what the browser loads are the modules of the repository,
 * without what is only for those who read them, comments and indentation, which are a third of it.
 *
 * A folder of its own and not public/ itself, because the client is needed in it: a copy among the sources would be edited
 * by mistake, and a link is passed over by wrangler without a word. It is done whenever the build is asked for, apart from the
 * Worker's own, which takes a minute and does not depend on it.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { buildDir, pageDir, root } from "./paths.mjs";

/** What goes where: folders and files, from the checkout into the page. */
const PARTS = [
  ["public", ""],
  ["client/index.js", "client/index.js"],
  ["client/src", "client/src"],
];

/** @returns {Map<string, string>} The page's files, by their path in it, and where each comes from. */
export function pageFiles() {
  const files = new Map();
  for (const [from, to] of PARTS) {
    for (const path of under(join(root, from))) files.set(join(to, path), join(root, from, path));
  }
  return files;
}

/** @returns {Promise<Map<string, Buffer>>} The page's files, by their path in it, as they are served. */
export async function pageContents() {
  // Here, because the set-up that needs this is what installs it.
  const { transformSync } = await import("esbuild");
  const served = (path, text) => {
    const loader = { ".js": "js", ".css": "css" }[extname(path)];
    if (!loader) return text;
    return transformSync(text, { loader, minifyWhitespace: true, legalComments: "none", charset: "utf8" }).code;
  };
  return new Map([...pageFiles()].map(([path, from]) => [path, Buffer.from(served(path, readFileSync(from, "utf8")))]));
}

/**
 * Brings build/page up to date. What is the same stays untouched, since a Worker may be serving it.
 *
 * @param {string} [directory] In its place.
 */
export async function assemblePage(directory = pageDir) {
  const files = await pageContents();
  mkdirSync(directory, { recursive: true });
  for (const path of under(directory)) if (!files.has(path)) rmSync(join(directory, path), { force: true });
  for (const [path, content] of files) {
    const target = join(directory, path);
    if (read(target)?.equals(content)) continue;
    mkdirSync(dirname(target), { recursive: true });
    const unfinished = join(buildDir, `.page-${process.pid}`);
    writeFileSync(unfinished, content);
    renameSync(unfinished, target);
  }
  // worker-build keeps git away from all that is built, and npm would obey: this file goes before that for it.
  if (!existsSync(join(buildDir, ".npmignore"))) writeFileSync(join(buildDir, ".npmignore"), "");
}

/** The files below a folder, as paths relative to it; of a file itself, nothing but it. */
function under(path) {
  try {
    return readdirSync(path, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(path.length + 1));
  } catch (error) {
    if (error.code === "ENOTDIR") return [""];
    throw error;
  }
}

function read(file) {
  try {
    return readFileSync(file);
  } catch {
    return undefined;
  }
}
