/** Numbers, as people write them. */

export const number = (value) => value.toLocaleString();
/** So many of something. @param {number} value @param {string} one @param {string} [more] The plural, where it has more than an s. */
export const count = (value, one, more = `${one}s`) => `${number(value)} ${value === 1 ? one : more}`;
/** @param {number} value A share, from 0 to 1. */
export const percent = (value) => `${(value * 100).toLocaleString(undefined, { maximumFractionDigits: 2 })} %`;
export const sum = (values) => values.reduce((all, value) => all + value, 0);
