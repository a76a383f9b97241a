/** The part of the set-up that is about Rust: a toolchain, what turns a crate into a Worker, and the built Worker. */
import { join } from "node:path";
import { withLock } from "./lock.mjs";
import { cacheDir, stateDir } from "./paths.mjs";
import { provideLinters, provideToolchain } from "./toolchain.mjs";
import { provideTools } from "./tools.mjs";
import { build, buildReady } from "./worker-build.mjs";

/**
 * @param {{ build: boolean, rust: boolean }} want As for `setUp`.
 * @returns {Promise<{ toolchain?: import("./toolchain.mjs").Toolchain }>}
 */
export async function provideBuild({ build: wantBuild, rust }) {
  if (!rust && buildReady()) return {};

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
