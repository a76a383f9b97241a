/** The field for the operator's key, as each of the operator's views has it. */
import { ask } from "./ask.js";
import { keyField } from "./key-field.js";

export const operatorKey = () =>
  keyField({
    role: "operator",
    label: "Operator key",
    hint: "ADMIN_KEY. It stays in this tab’s memory: a reload forgets it.",
    check: (key) => ask("/v1/gates", { key }),
  });
