/**
 * The one set-up that everything else calls: it looks for what is needed, gets what is missing, and is silent about
 * what is there. Nothing in here may need a package, because it is what installs them.
 */
import { join } from "node:path";
import { withLock } from "./lock.mjs";
import { providePackages } from "./node.mjs";
import { assemblePage } from "./page.mjs";
import { cacheDir, stateDir } from "./paths.mjs";
import { Problem } from "./run.mjs";
import { provideLinters, provideToolchain } from "./toolchain.mjs";
import { provideTools } from "./tools.mjs";
import { build, buildReady } from "./worker-build.mjs";

/**
 * @param {object} want
 * @param {boolean} [want.build] The built Worker, and the page.
 * @param {boolean} [want.rust] The toolchain itself too, with clippy and rustfmt, even when the build is up to date.
 * @returns {Promise<{ toolchain?: import("./toolchain.mjs").Toolchain }>}
 */
export async function setUp({ build: wantBuild = false, rust = false } = {}) {
  if (process.platform === "win32")
    throw new Problem("Windows is not supported directly: use WSL, where all of this works.");
  await providePackages();
  const { toolchain } = rust || (wantBuild && !buildReady()) ? await provideBuild(wantBuild, rust) : {};
  // Afterwards: worker-build may have begun with an empty folder.
  if (wantBuild) assemblePage();
  return { toolchain };
}

async function provideBuild(wantBuild, rust) {
  // The cache belongs to the machine, the build to this checkout: two clones may compile side by side.
  const { toolchain, tools } = await withLock(join(cacheDir, "lock"), async () => {
    const toolchain = await provideToolchain();
    if (rust) await provideLinters(toolchain);
    const tools = wantBuild && !buildReady() ? await provideTools(toolchain) : undefined;
    return { toolchain, tools };
  });
  if (tools) {
    await withLock(join(stateDir, "build.lock"), async () => {
      if (!buildReady()) await build({ ...toolchain.env, ...tools });
    });
  }
  return { toolchain };
}
