/** The runbook in short (B18): from what one sees to what to look at, and to the knob. docs/runbook.md has all of it. */
import { card } from "../card.js";
import { h } from "../dom.js";
import { table } from "../tables.js";

const WATCH = ["#watch", "Watch"];
const GATE = ["#operate/gate", "Force the gate"];
const QUEUE = ["#operate/queue", "Pause a queue"];
const DRAIN = ["#operate/drain", "Drain"];
const REDRIVE = ["#operate/redrive", "Re-drive"];

/** Symptom, where to look, what to turn: links and texts. */
const ROWS = [
  ["529s for over ten minutes", [WATCH, ": is a gate shut?"], ["Nothing is lost. If it will last, ", GATE, " open: nobody probes, and callers leave at once."]],
  ["429s and 529s in turn", [WATCH, ": calls by how they ended."], ["pace.calls_per_minute in POLICY, for the 429s. The 529s need nothing."]],
  ["Still 529 after all retries", ["The job’s history; is something forced closed, above?"], ["End that override. Then ", REDRIVE, " what has failed."]],
  ["429s of the fallback", [WATCH, ": calls of the fallback’s model."], ["Let fewer kinds leave. ", QUEUE, " low meanwhile."]],
  ["Callers give up before the answer", ["Timeouts of the SDKs; abandoned calls."], ["A longer timeout there, or spillway-handoff: auto."]],
  ["Success falls at certain hours", [WATCH, ": hours of the day."], ["hours.peak_utc in POLICY. ", QUEUE, " low until they are over."]],
  ["A single 529", ["–"], ["Nothing: it is tried again within two seconds."]],
  ["A spend cap that was raised, a key that was replaced", [WATCH, ": spend cap, authentication failed."], [GATE, " closed for 15 min, after a cap; then ", REDRIVE, " what has failed by it."]],
  ["Something has to be changed", ["What is unfinished."], [DRAIN, " until nothing is."]],
]; // prettier-ignore

export function symptoms() {
  const text = (part) => (Array.isArray(part) ? h("a", { href: part[0] }, part[1]) : part);
  const rows = ROWS.map(([symptom, ...more]) => [symptom, ...more.map((parts) => parts.map(text))]);
  return card("Which knob?", [table(["You see", "Look at", "Turn"], rows, { named: true })]).element;
}
