// The matrix lab: three writes through one rule, in the five steps of a token.

const NAMES = ["rule", "position", "angle", "decay", "channel_decay", "beta", "erase", "write"];
const STAGES = ["decay", "read", "erase", "write", "query"];
const LAST = 3 * STAGES.length;

const keysAt = (degrees) => {
  const [x, y] = [0.8, 0.6];
  const turn = (degrees * Math.PI) / 180;
  return { Ada: [x, y], Bo: [x * Math.cos(turn) - y * Math.sin(turn), x * Math.sin(turn) + y * Math.cos(turn)] };
};

/** The three tokens, each with its gates, its steps and everybody's answer after it. */
const compute = (settings, writes) => {
  const keys = keysAt(settings.angle);
  let S = zeros(2, 2);
  return writes.map(({ name, room, digits }, t) => {
    const gates = Object.fromEntries(RULES[settings.rule].gates.map((gate) => [gate, settings[gate][t]]));
    const key = keys[name];
    const used = controls(settings.rule, gates, key, digits);
    const steps = advance(S, key, used);
    const answers = Object.fromEntries(Object.entries(keys).map(([who, q]) => [who, answer(steps.after, q)]));
    S = steps.after;
    return { name, room, digits, key, ...used, ...steps, answers };
  });
};

const flat = (tokens) => tokens.flatMap((t) => [...t.after.flat(), ...t.answers.Ada, ...t.answers.Bo]);

const GATES = {
  decay: { label: ["α decay"], tone: "decay", high: 1 },
  channel_decay: { label: ["α₁ decay, key channel 1", "α₂ decay, key channel 2"], tone: "decay", high: 1 },
  beta: { label: ["β strength"], tone: "value", high: 2 },
  erase: { label: ["b₁ erase, key channel 1", "b₂ erase, key channel 2"], tone: "erase", high: 1 },
  write: { label: ["w₁ write, tens", "w₂ write, ones"], tone: "value", high: 1 },
};

const says = {
  decay: (t) => `The state fades: S̄ = diag(α) S with α = (${t.alpha.map((x) => shown(x)).join(", ")}).`,
  read: (t) =>
    t.erase.some((x) => x !== 0)
      ? `The faded state is read at the erase key e = (${t.erase.map((x) => shown(x)).join(", ")}): r = S̄ᵀe.`
      : "Nothing is read: this rule has no erase key, or its gate is 0.",
  erase: (t) => (t.read.some((x) => x !== 0) ? "What was read is taken off along the key: −k rᵀ." : "So nothing is erased."),
  write: (t) => `The written value z = (${t.write.map((x) => shown(x)).join(", ")}) is added along the same key: +k zᵀ.`,
  query: () => "Everybody is asked for: Sᵀk for each key.",
};

function render({ model, el }) {
  const { get, set } = settingsOf(model, NAMES);
  const { writes, fixtures } = model.get("data");
  const box = frame(el, "Matrix lab");
  verify(box, fixtures, (settings) => flat(compute(settings, writes)));

  // The choice of the rule, and how far the keys are apart
  const titles = Object.fromEntries(model.get("data").rules.map((name) => [name, RULES[name].title]));
  const rule = choice({ label: "Rule", options: titles, value: get().rule, name: "rule", change: (x) => set({ rule: x }) });
  const angle = slider({
    label: "Angle between the two keys, degrees", low: 0, high: 180, step: 1, value: get().angle, name: "angle", tone: "key", digits: 0,
    change: (x) => set({ angle: x }),
  });

  // The steps
  const go = (position) => set({ position: Math.max(0, Math.min(LAST, position)) });
  const back = button("◀", "One step back", () => go(get().position - 1));
  const on = button("▶", "One step on", () => go(get().position + 1));
  const tokens = writes.map(({ name, room }, t) => {
    const node = button(`${name} → ${room}`, `Token ${t + 1}: ${name} → ${room}`, () => go((t + 1) * STAGES.length));
    node.setAttribute("data-token", t);
    return node;
  });
  const stream = make("div", { class: "piece-stream", role: "group", "aria-label": "Steps" }, back, ...tokens, on);
  arrows(stream, LAST, () => get().position, go);
  const status = make("p", { class: "piece-status", role: "status" });

  // The gates of the current token, rebuilt when rule or token changes
  const gates = make("fieldset", { class: "piece-gates" });
  let gatesFor = "";
  let sliders = [];
  const buildGates = (settings, t) => {
    const { name, room } = writes[t];
    sliders = [];
    const nodes = RULES[settings.rule].gates.flatMap((gate) =>
      GATES[gate].label.map((label, i) => {
        const vector = GATES[gate].label.length > 1;
        const control = slider({
          label, low: 0, high: GATES[gate].high, step: 0.01, value: 0, name: `${gate}.${t}${vector ? `.${i}` : ""}`, tone: GATES[gate].tone,
          change: (x) => {
            const now = structuredClone(get()[gate]);
            if (vector) now[t][i] = x;
            else now[t] = x;
            set({ [gate]: now });
          },
        });
        sliders.push((now) => control.set(vector ? now[gate][t][i] : now[gate][t]));
        return control.node;
      }),
    );
    gates.replaceChildren(make("legend", {}, `Gates of token ${t + 1}, ${name} → ${room}`), ...nodes);
  };

  const flow = make("div", { class: "piece-flow" });
  const watched = make("div", { class: "piece-watched" });
  const panel = (stage, title, reached, active, ...inside) =>
    make("section", { class: `piece-stage${active ? " active" : ""}${reached ? "" : " later"}`, "data-stage": stage }, make("h4", {}, title), ...inside);

  const draw = () => {
    const settings = get();
    const run = compute(settings, writes);
    const position = settings.position;
    const t = Math.max(0, Math.ceil(position / STAGES.length) - 1);
    const stage = position === 0 ? -1 : (position - 1) % STAGES.length;
    const now = run[t];
    const top = Math.max(...run.flatMap((x) => [...x.after.flat(), ...x.faded.flat()].map(Math.abs)), 1e-9);

    rule.set(settings.rule);
    angle.set(settings.angle);
    if (gatesFor !== `${settings.rule} ${t}`) buildGates(settings, t);
    gatesFor = `${settings.rule} ${t}`;
    for (const fill of sliders) fill(settings);
    unusable(back, position === 0);
    unusable(on, position === LAST);
    tokens.forEach((node, i) => node.setAttribute("aria-pressed", position > 0 && i === t));
    status.textContent =
      position === 0 ? "The state is empty. Step on." : `Token ${t + 1}, ${STAGES[stage]} (step ${position} of ${LAST}). ${says[STAGES[stage]](now)}`;

    const vector = (name, letter, x, tone) =>
      make("div", { class: "piece-vector" }, make("span", {}, letter), heat([x], { name, top, tone }));
    const table = (name, rows, tone = "state") =>
      heat(rows, { name, top, tone, labels: ["key 1", "key 2"], heads: ["tens", "ones"] });
    const reached = (i) => stage >= i;
    const hide = (rows, seen) => (seen ? rows : rows.map((row) => row.map(() => NaN)));
    flow.replaceChildren(
      panel("before", "State before", true, stage === -1, table("before", now.before),
        vector("key", `key of ${now.name}`, now.key, "key"), vector("value", `room ${now.room}`, now.digits, "value")),
      panel("decay", "After decay", reached(0), stage === 0, table("faded", hide(now.faded, reached(0))), vector("alpha", "α", now.alpha, "decay")),
      panel("read", "Read", reached(1), stage === 1, vector("erasekey", "e", now.erase, "erase"), vector("read", "r = S̄ᵀe", hide([now.read], reached(1))[0], "state")),
      panel("erase", "Erase −k rᵀ", reached(2), stage === 2, table("erased", hide(now.erased, reached(2)), "erase")),
      panel("write", "Write +k zᵀ", reached(3), stage === 3, table("written", hide(now.written, reached(3)), "value"), vector("writevalue", "z", now.write, "value")),
      panel("query", "State after", reached(3), stage === 3, table("after", hide(now.after, reached(3)))),
    );

    watched.classList.toggle("active", stage === 4);

    // Every name's answer after every token: the effect of a gate is seen while it is dragged
    const told = (who, i) => run.slice(0, i + 1).findLast((x) => x.name === who)?.room;
    const head = make("tr", {}, make("td"), ...run.map((x, i) => make("th", { scope: "col", class: i === t ? "now" : null }, `after ${x.name} → ${x.room}`)));
    const rows = ["Ada", "Bo"].map((who) =>
      make(
        "tr",
        { "data-name": who },
        make("th", { scope: "row" }, `${who}’s room?`),
        ...run.map((x, i) => {
          const [tens, ones] = x.answers[who];
          const truth = told(who, i);
          const before = i > 0 ? run[i - 1].answers[who] : [0, 0];
          const moved = Math.hypot(tens - before[0], ones - before[1]);
          const note = truth === undefined ? "not told yet" : `was told ${truth}`;
          const change = i > 0 && x.name !== who ? `, moved by ${shown(moved)}` : "";
          return make(
            "td",
            { class: i === t ? "now" : null },
            make("span", { class: "piece-pair" }, "(", figure("b", tens, { "data-cell": `${who}.${i}.0` }), ", ", figure("b", ones, { "data-cell": `${who}.${i}.1` }), ")"),
            make("small", {}, note + change),
          );
        }),
      ),
    );
    watched.replaceChildren(make("table", { class: "piece-answers" }, make("thead", {}, head), make("tbody", {}, ...rows)));
  };

  const reset = button("Gates as at first", "Set all gates back", () => set(structuredClone(model.get("data").defaults)));
  box.append(make("div", { class: "piece-top" }, rule.node, angle.node, reset), stream, status, gates, flow, watched);
  return drawOnChange(model, NAMES, draw);
}

export default { render };
