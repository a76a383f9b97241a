/** The form that a job is written in: what POST /v1/jobs takes, with every fault that it finds shown where it was made. */
import { h, tell } from "../dom.js";
import { field } from "../field.js";

/**
 * The table of kinds that Spillway has built in, and whether the smaller model may answer. No route tells it, and a deployment can
 * have others: those are typed in.
 */
export const KINDS = {
  default: false,
  short_summary: true,
  tagging: true,
  classification: true,
  structured_extract: true,
  long_form_writing: false,
  code_generation: false,
};
const OTHER = "";

const PRIORITIES = {
  high: "It keeps to its model.",
  medium: "",
  low: "It may wait for quieter hours.",
};

/** @param {(job: object) => Promise<void>} onSubmit Told the body of a submission. What it rejects with is shown. */
export function tryForm(onSubmit) {
  const prompt = h("textarea", { rows: 6, required: true });
  const kind = select([...Object.keys(KINDS).map((name) => [name, name]), [OTHER, "Another …"]]);
  const otherKind = h("input", { autocapitalize: "none", spellcheck: "false" });
  const priority = select(
    Object.keys(PRIORITIES).map((name) => [name, name]),
    "medium",
  );
  const model = h("input", { autocapitalize: "none", spellcheck: "false", placeholder: "the deployment’s own" });
  const maxTokens = h("input", { inputmode: "numeric", value: 1024 });
  const deadline = h("input", { inputmode: "numeric", placeholder: "the deployment’s own" });
  const exhausted = select([
    ["", "as its kind says"],
    ["ask", "ask whether it may wait"],
    ["defer", "wait for quieter hours"],
    ["fail", "fail"],
  ]);
  const interrupted = select([
    ["", "begin again"],
    ["fail", "keep what had come, and fail"],
  ]);
  const button = h("button", { class: "main" }, "Submit");
  const fault = h("div", { class: "fault", role: "alert", tabindex: "-1", hidden: true });

  // By the places that the API names; what is wrong within one is shown at it.
  const fields = {
    "request.messages": field("Prompt", prompt),
    kind: field("Kind", kind, "-"),
    "kind.other": field("Its name", otherKind),
    priority: field("Priority", priority, "-"),
    "request.model": field("Model", model),
    "request.max_tokens": field("Tokens at most", maxTokens),
    deadline_seconds: field("Deadline in seconds", deadline, "30 to 604,800: no wait goes past it."),
    when_exhausted: field("When every attempt was in vain", exhausted),
    when_interrupted: field("When Claude breaks off before your eyes", interrupted),
  };
  const more = h(
    "details",
    {},
    h("summary", {}, "More settings"),
    ["request.model", "request.max_tokens", "deadline_seconds", "when_exhausted", "when_interrupted"].map(
      (place) => fields[place].element,
    ),
  );
  const explain = () => {
    fields["kind.other"].element.hidden = kind.value !== OTHER;
    fields.kind.explain(KINDS[kind.value] ? "A smaller model may answer when its own is overloaded." : "");
    fields.priority.explain(PRIORITIES[priority.value]);
  };
  kind.addEventListener("change", explain);
  priority.addEventListener("change", explain);
  explain();

  /** What is left empty is left out: then it is as the deployment has it. */
  function job() {
    const request = {
      model: model.value.trim() || undefined,
      max_tokens: number(maxTokens.value),
      messages: [{ role: "user", content: prompt.value }],
    };
    return {
      kind: kind.value === OTHER ? otherKind.value.trim() : kind.value,
      priority: priority.value,
      request,
      deadline_seconds: number(deadline.value),
      when_exhausted: exhausted.value || undefined,
      when_interrupted: interrupted.value || undefined,
    };
  }

  async function submit(event) {
    event.preventDefault();
    if (button.ariaDisabled === "true") return;
    for (const { refuse } of Object.values(fields)) refuse("");
    tell(fault, "");
    button.ariaDisabled = "true";
    button.textContent = "Submitting …";
    try {
      await onSubmit(job());
    } catch (error) {
      refuse(error);
    } finally {
      button.ariaDisabled = null;
      button.textContent = "Submit";
    }
  }

  function refuse(error) {
    const refused = [];
    const others = [];
    for (const { place, message } of error.problems ?? []) {
      const known = Object.keys(fields).find(
        (known) => place === known || (/^[.[]/.test(place.slice(known.length)) && place.startsWith(known)),
      );
      const at = known === "kind" && kind.value === OTHER ? "kind.other" : known;
      if (at) refused.push(fields[at].refuse(message));
      else others.push(`${place} ${message}`);
    }
    if (refused.some((input) => more.contains(input))) more.open = true;
    // The first on the page; the API names them in an order of its own.
    Array.from(element.elements)
      .find((input) => refused.includes(input))
      ?.focus();
    const rest = refused.length > 0 ? others.join(". ") : (error.message ?? String(error));
    tell(fault, rest);
    if (refused.length === 0) fault.focus();
  }

  const element = h(
    "form",
    { class: "compose", novalidate: true, onsubmit: submit, "aria-label": "A job" },
    fields["request.messages"].element,
    h("div", { class: "pair" }, fields.kind.element, fields.priority.element),
    fields["kind.other"].element,
    more,
    fault,
    button,
  );
  return { element };
}

/** What is no number goes as it is: the API says what is wrong with it, and where. */
function number(text) {
  const value = text.trim();
  return value === "" ? undefined : /^\d+$/.test(value) ? Number(value) : value;
}

function select(options, value = options[0][0]) {
  return h(
    "select",
    {},
    options.map(([name, text]) => h("option", { value: name, selected: name === value }, text)),
  );
}
