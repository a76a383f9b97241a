/** Python packages from PyPI, each in an environment of its own, kept from run to run. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** @returns {{ python: string, missing: string | null }} Its interpreter, and why there is none, if so. */
export function environment(requirement, module) {
  const place = fileURLToPath(new URL(`../../.state/python-${requirement.replace("==", "-")}`, import.meta.url));
  const python = join(place, "bin", "python");
  const run = (command, ...args) => spawnSync(command, args, { encoding: "utf8", timeout: 240_000 });
  const works = () => existsSync(python) && run(python, "-c", `import ${module}`).status === 0;
  if (works()) return { python, missing: null };
  const made = run("python3", "-m", "venv", "--clear", place);
  if (made.status !== 0) {
    return { python, missing: `python3 makes no environment: ${made.error?.message ?? made.stderr.trim()}` };
  }
  run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement);
  return { python, missing: works() ? null : `${requirement} cannot be installed` };
}
