/**
 * The one set-up that everything else calls: it looks for what is needed, gets what is missing, and is silent about
 * what is there. Nothing in here may need a package, because it is what installs them; and nothing of Rust may be loaded
 * where the npm package is, which has the built Worker and no use for a compiler.
 */
import { providePackages } from "./node.mjs";
import { assemblePage } from "./page.mjs";
import { packaged } from "./paths.mjs";
import { Problem } from "./run.mjs";

/**
 * @param {object} want
 * @param {boolean} [want.build] The built Worker, and the page.
 * @param {boolean} [want.rust] The toolchain itself too, with clippy and rustfmt, even when the build is up to date.
 * @returns {Promise<{ toolchain?: import("./toolchain.mjs").Toolchain }>}
 */
export async function setUp({ build = false, rust = false } = {}) {
  if (process.platform === "win32")
    throw new Problem("Windows is not supported directly: use WSL, where all of this works.");
  await providePackages();
  if (packaged || !(build || rust)) return {};
  const { provideBuild } = await import("./rust.mjs");
  const provided = await provideBuild({ build, rust });
  // Afterwards: worker-build may have begun with an empty folder.
  if (build) await assemblePage();
  return provided;
}
