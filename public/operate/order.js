/** What every order of an operator has: an end, a reason, and who gave it; the form for one, and the taking back of one. */
import { ask, fromNow } from "../ask.js";
import { h } from "../dom.js";
import { choice, field } from "../field.js";
import { duration, moment } from "../time.js";
import { action } from "./action.js";

const QUICK = [900, 3_600, 14_400];
const OTHER = "other";

/**
 * What all knobs have in common; `onChanged` reads what is in force.
 * @typedef {{ author: ReturnType<typeof authorField>, onRefusedKey: (why: string) => void, onChanged: () => Promise<void> }} Shared
 *
 * What an order does, said before and after; `learn` is told what the API has answered.
 * @typedef {{ path: string, question: string, consequences: string[], yes: string, done: string, learn?: (answer: object) => void }} Said
 */

/** Who gives the orders of this tab: asked for once, and kept as long as the keys are. */
export function authorField() {
  const input = h("input", { autocomplete: "off", spellcheck: "false", placeholder: "operator" });
  const { element, refuse } = field("Your name", input, "It stands beside every order, for whoever finds it.");
  return { card: element, refuse, read: () => input.value.trim() || undefined };
}

/**
 * @param {Shared} shared
 * @param {object} options As of `action`; the end and the note come after its fields.
 * @param {string} [options.hint] Who else reads the note.
 * @param {() => { place: string, message: string }[]} [options.check] What can be seen to be wrong without the API.
 * @param {(length: string) => Said & { body?: object }} options.plan
 */
export function orderForm({ author, onRefusedKey, onChanged }, { name, fields = {}, hint, check, plan }) {
  const at = h("input", { type: "datetime-local" });
  const other = field("The moment", at, "In this browser’s time; at most 7 days away.");
  const show = () => (other.element.hidden = quick.value !== OTHER);
  const quick = choice(
    "For",
    { ...Object.fromEntries(QUICK.map((seconds) => [seconds, duration(seconds)])), [OTHER]: "until …" },
    show,
  );
  show();
  const until = {
    element: h("div", {}, quick.element, other.element),
    refuse(message) {
      for (const each of [quick, other]) each.refuse("");
      return (quick.value === OTHER ? other : quick).refuse(message);
    },
  };
  const note = h("input", { autocomplete: "off" });
  /** A quick end counts from when it is sent, by the server's clock. */
  const end = () => (quick.value === OTHER ? new Date(at.value).toISOString() : fromNow(Number(quick.value)));

  return action({
    name,
    fields: { ...fields, until, note: field("Why", note, hint), author },
    onRefusedKey,
    plan() {
      const problems = check?.() ?? [];
      const isOther = quick.value === OTHER;
      if (isOther && !at.value) problems.push({ place: "until", message: "needs a day and a time" });
      else if (isOther && end() <= fromNow(0)) problems.push({ place: "until", message: "has to be in the future" });
      if (!note.value.trim()) problems.push({ place: "note", message: "is needed by whoever finds the order" });
      if (problems.length > 0) throw Object.assign(new Error(), { problems });
      const length = isOther ? `until ${moment(end())}` : `for ${duration(quick.value)}`;
      const { path, body, done, learn, ...said } = plan(length);
      const act = async () => {
        const order = { ...body, until: end(), note: note.value.trim(), author: author.read() };
        const answer = await ask(path, { method: "PUT", body: order });
        // The next one has a reason of its own.
        note.value = "";
        learn?.(answer);
        await onChanged();
        return done;
      };
      return { ...said, act };
    },
  });
}

/**
 * The button that takes an order back before its end.
 *
 * @param {Shared} shared
 * @param {Said & { name: string }} said
 * @param {(text: string) => void} onEnded The button is gone by then.
 */
export function ending({ onRefusedKey, onChanged }, { name, path, done, learn, ...said }, onEnded) {
  const act = async () => {
    const answer = await ask(path, { method: "DELETE" });
    onEnded(done);
    learn?.(answer);
    await onChanged();
  };
  return action({ name, look: "quiet", plan: () => ({ ...said, act }), onRefusedKey });
}
