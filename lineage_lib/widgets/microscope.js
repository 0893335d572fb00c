// The state microscope: a stream of writes under two rules, token by token.

const NAMES = ["stream", "left", "right", "position", "skip", "decay", "slow_decay", "beta", "erase", "write"];
const SIDES = ["left", "right"];
const CUT = 2; // errors are drawn up to here

/** States and recall errors after each token: {states: [S …], errors: [[error of each name] …]}; NaN before a name is written. */
const runSide = (rule, settings, { keys, values, names, book }) => {
  const [K, V] = [keys[0].length, values[0].length];
  const open = {
    decay: settings.decay,
    channel_decay: keys[0].map((_, i) => (i < K / 2 ? settings.decay : settings.slow_decay)),
    beta: settings.beta,
    erase: Array(K).fill(settings.erase),
    write: Array(V).fill(settings.write),
  };
  const newest = book.map(() => null);
  let S = zeros(K, V);
  const states = [];
  const errors = [];
  keys.forEach((key, t) => {
    const shut = settings.skip && names[t] < 0 && RULES[rule].gates.length > 0;
    if (!shut) S = advance(S, key, controls(rule, open, key, values[t])).after;
    if (names[t] >= 0) newest[names[t]] = values[t];
    states.push(S);
    errors.push(newest.map((v, n) => (v === null ? NaN : distance(answer(S, book[n]), v) / Math.hypot(...v))));
  });
  return { states, errors };
};

const distance = (a, b) => Math.hypot(...a.map((x, i) => x - b[i]));

const mean = (xs) => {
  const known = xs.filter((x) => !Number.isNaN(x));
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : NaN;
};

/** What is compared with the library: both sides at the position. */
const compute = (settings, streams) =>
  SIDES.flatMap((side) => {
    const { states, errors } = runSide(settings[side], settings, streams[settings.stream]);
    const t = settings.position - 1;
    return [...states[t].flat(), ...errors[t].map((x) => (Number.isNaN(x) ? -1 : x)), mean(errors[t])];
  });

const SLIDERS = {
  decay: { label: "α of the head, or of key channels 1 to 4", tone: "decay", low: 0.5, high: 1, used: ["decay", "channel_decay"] },
  slow_decay: { label: "α of key channels 5 to 8", tone: "decay", low: 0.5, high: 1, used: ["channel_decay"] },
  beta: { label: "β strength", tone: "value", low: 0, high: 2, used: ["beta"] },
  erase: { label: "b erase, every key channel", tone: "erase", low: 0, high: 1, used: ["erase"] },
  write: { label: "w write, every value channel", tone: "value", low: 0, high: 1, used: ["write"] },
};

const [WIDE, LEFT, RIGHT, ROW] = [440, 96, 54, 36];

function render({ model, el }) {
  const { get, set } = settingsOf(model, NAMES);
  const { streams, people, fixtures } = model.get("data");
  const box = frame(el, "State microscope");
  verify(box, fixtures, (settings) => compute(settings, streams));
  const T = streams[get().stream].keys.length;

  // What is compared
  const titles = Object.fromEntries(Object.entries(RULES).map(([name, { title }]) => [name, title]));
  const stories = Object.fromEntries(Object.entries(streams).map(([name, { title }]) => [name, title]));
  const stream = choice({ label: "Stream", options: stories, value: get().stream, name: "stream", change: (x) => set({ stream: x }) });
  const menus = Object.fromEntries(
    SIDES.map((side) => [
      side,
      choice({ label: side === "left" ? "One rule" : "Another rule", options: titles, value: get()[side], name: side, change: (x) => set({ [side]: x }) }),
    ]),
  );
  const skip = make("input", { id: fresh(), type: "checkbox", "data-setting": "skip" });
  skip.addEventListener("change", () => set({ skip: skip.checked }));
  const skips = make("div", { class: "piece-check" }, skip, make("label", { for: skip.id }, "The gates shut at distractors"));

  // The stream, played and stepped
  let timer = 0;
  const go = (position) => set({ position: Math.max(1, Math.min(T, position)) });
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = "▶ Play";
  };
  const play = button("▶ Play", "Play the stream, or stop it", () => {
    if (timer) return stop();
    if (get().position === T) go(1);
    play.textContent = "❚❚ Stop";
    timer = setInterval(() => (get().position >= T ? stop() : go(get().position + 1)), 120);
  });
  const back = button("◀", "One token back", () => (stop(), go(get().position - 1)));
  const on = button("▶", "One token on", () => (stop(), go(get().position + 1)));
  const place = slider({ label: "Token", low: 1, high: T, step: 1, value: get().position, name: "position", tone: "key", change: (x) => (stop(), go(x)) });
  place.node.querySelector("output").remove();
  const line = make("div", { class: "piece-play", role: "group", "aria-label": "Play and step" }, back, play, on, place.node);
  arrows(line, T, () => get().position, (x) => (stop(), go(x)));
  const status = make("p", { class: "piece-status", role: "status" });

  const gates = make("fieldset", { class: "piece-gates" });
  const sliders = Object.entries(SLIDERS).map(([name, { used, ...about }]) => ({
    name, used, ...slider({ ...about, step: 0.01, value: get()[name], name, change: (x) => set({ [name]: x }) }),
  }));
  gates.append(make("legend", {}, "Gates of both rules"), ...sliders.map(({ node }) => node));

  // Two sides, computed again only when something they depend on has changed
  const sides = make("div", { class: "piece-sides" });
  const known = {};
  const result = (side, settings) => {
    const { position, left, right, ...rest } = settings;
    const key = JSON.stringify([settings[side], rest]);
    if (known[side]?.key !== key) {
      const run = runSide(settings[side], settings, streams[settings.stream]);
      known[side] = { key, ...run, chart: chart(run, streams[settings.stream]) };
    }
    return known[side];
  };

  const at = (t) => LEFT + ((WIDE - LEFT - RIGHT) * t) / (T - 1);
  const chart = ({ errors }, { names }) => {
    const rows = [...people.map((who, n) => ({ who, of: (t) => errors[t][n], n })), { who: "mean", of: (t) => mean(errors[t]), n: null }];
    const strays = names.some((n) => n < 0);
    const height = rows.length * ROW + (strays ? 26 : 4) + 16;
    const picture = svg("svg", { class: "piece-chart", viewBox: `0 0 ${WIDE} ${height}`, role: "img" });
    rows.forEach(({ who, of, n }, i) => {
      const base = (i + 1) * ROW;
      const y = (x) => base - ((ROW - 8) * Math.min(x, CUT)) / CUT;
      const points = names.flatMap((_, t) => (Number.isNaN(of(t)) ? [] : [`${at(t).toFixed(1)},${y(of(t)).toFixed(1)}`]));
      picture.append(svg("text", { class: "name", x: 0, y: base - 2 }, who), svg("line", { class: "base", x1: LEFT, x2: WIDE - RIGHT, y1: base, y2: base }));
      if (points.length) {
        const [first, last] = [points[0], points.at(-1)].map((p) => p.split(",")[0]);
        picture.append(svg("polygon", { class: "area", points: `${first},${base} ${points.join(" ")} ${last},${base}` }));
        picture.append(svg("polyline", { class: n === null ? "line mean" : "line", points: points.join(" ") }));
      }
      names.forEach((written, t) => {
        if (n !== null && written === n) picture.append(svg("line", { class: "written", x1: at(t), x2: at(t), y1: base, y2: base + 6 }));
      });
      picture.append(svg("text", { class: "value", x: WIDE - RIGHT + 6, y: base - 2, "data-row": n === null ? "mean" : n }, ""));
    });
    const foot = rows.length * ROW + 22;
    if (strays) {
      picture.append(svg("text", { class: "name", x: 0, y: foot }, "distractors"));
      names.forEach((n, t) => n < 0 && picture.append(svg("line", { class: "stray", x1: at(t), x2: at(t), y1: foot - 11, y2: foot })));
    }
    picture.append(svg("line", { class: "cursor", x1: 0, x2: 0, y1: 4, y2: height - 12 }));
    let dragging = false;
    const seek = (event) => {
      const { left, width } = picture.getBoundingClientRect();
      const x = ((event.clientX - left) / width) * WIDE;
      stop();
      go(1 + Math.round(((x - LEFT) / (WIDE - LEFT - RIGHT)) * (T - 1)));
    };
    picture.addEventListener("pointerdown", (event) => ((dragging = true), picture.setPointerCapture(event.pointerId), seek(event)));
    picture.addEventListener("pointermove", (event) => dragging && seek(event));
    picture.addEventListener("pointerup", () => (dragging = false));
    picture.addEventListener("pointercancel", () => (dragging = false));
    return picture;
  };

  const draw = () => {
    const settings = get();
    const t = settings.position - 1;
    const { names } = streams[settings.stream];
    stream.set(settings.stream);
    for (const side of SIDES) menus[side].set(settings[side]);
    skip.checked = settings.skip;
    skip.disabled = !names.some((n) => n < 0);
    place.set(settings.position);
    const obeyed = new Set(SIDES.flatMap((side) => RULES[settings[side]].gates));
    for (const { name, used, node, set: fill } of sliders) {
      fill(settings[name]);
      node.hidden = !used.some((gate) => obeyed.has(gate));
    }
    gates.hidden = obeyed.size === 0;
    unusable(back, t === 0);
    unusable(on, t === T - 1);
    const said = names[t] < 0 ? "a distractor, whose key nobody asks for" : `a new value for ${people[names[t]]}`;
    status.textContent = `Token ${t + 1} of ${T}: ${said}.`;

    const runs = Object.fromEntries(SIDES.map((side) => [side, result(side, settings)]));
    const top = Math.max(...SIDES.flatMap((side) => runs[side].states[t].flat().map(Math.abs)), 1e-9);
    sides.replaceChildren(
      ...SIDES.map((side) => {
        const { errors, states, chart: picture } = runs[side];
        const now = mean(errors[t]);
        const title = RULES[settings[side]].title;
        for (const label of picture.querySelectorAll(".value")) {
          const row = label.getAttribute("data-row");
          const x = row === "mean" ? now : errors[t][row];
          label.textContent = shown(x);
          label.setAttribute("data-value", x);
        }
        const cursor = picture.querySelector(".cursor");
        for (const end of ["x1", "x2"]) cursor.setAttribute(end, at(t));
        picture.setAttribute("aria-label", `${title}: recall error of each name over the stream; mean now ${shown(now)}`);
        return make(
          "section",
          { class: "piece-side", "data-side": side, "data-rule": settings[side] },
          make("h4", {}, title),
          make("p", { class: "piece-score" }, "mean recall error ", figure("b", now, { "data-cell": `${side}.mean` })),
          picture,
          heat(states[t], { name: side, top, labels: states[t].map((_, i) => `key ${i + 1}`) }),
        );
      }),
    );
  };

  const legend = make(
    "p",
    { class: "piece-legend" },
    "Each line is a name’s recall error, 0 on its base line and cut at 2; a green tick is a write under that name. 1 is what an empty memory scores. " +
      "Below, the state: a row for each key channel, a column for each value channel.",
  );
  box.append(make("div", { class: "piece-top" }, stream.node, menus.left.node, menus.right.node, skips), gates, line, status, sides, legend);
  const end = drawOnChange(model, NAMES, draw);
  return () => (stop(), end());
}

export default { render };
