/** What a doctor says: a row for each thing, and what is left to do by hand. */

/**
 * @typedef {object} Row
 * @property {string} name
 * @property {string | undefined} found
 * @property {string} [remedy] For when it was not found.
 * @property {boolean} [automatic] Whether another command will provide it.
 */

/**
 * @param {Row[]} rows
 * @returns {string}
 */
export function table(rows) {
  const width = Math.max(...rows.map(({ name }) => name.length));
  return rows
    .map(({ name, found, automatic, remedy }) => {
      const mark = found ? "ok" : automatic ? "to come" : "MISSING";
      return `${name.padEnd(width)}  ${mark.padEnd(7)}  ${found ?? remedy}`;
    })
    .join("\n");
}

/**
 * @param {Row[]} rows
 * @param {string} well What to say when nothing is missing.
 * @returns {{ text: string, code: number }}
 */
export function report(rows, well) {
  const missing = rows.filter(({ found, automatic }) => !found && !automatic);
  const names = missing.map(({ name }) => name).join(", ");
  return {
    text: `${table(rows)}\n\n${missing.length === 0 ? well : `Still to do by hand: ${names}.`}\n`,
    code: missing.length === 0 ? 0 : 1,
  };
}
