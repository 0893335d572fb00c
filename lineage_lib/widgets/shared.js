// What the pieces share. A piece's own file follows in the same module and ends with `export default { render }`.

// --- One token of any rule of the family ---

const RULES = {
  "linear-attention": { title: "Linear attention", gates: [] },
  "mamba-2": { title: "Mamba-2", gates: ["decay"] },
  deltanet: { title: "DeltaNet", gates: ["beta"] },
  "gated-deltanet": { title: "Gated DeltaNet", gates: ["decay", "beta"] },
  kda: { title: "Kimi Delta Attention", gates: ["channel_decay", "beta"] },
  "gated-deltanet-2": { title: "Gated DeltaNet-2", gates: ["channel_decay", "erase", "write"] },
};

const scaled = (gate, vector) => vector.map((x, i) => (Array.isArray(gate) ? gate[i] : gate) * x);

/** What a rule does with a key and a value: decays of the key channels, erase key, written value. */
const controls = (rule, gates, key, value) => {
  const has = (name) => RULES[rule].gates.includes(name);
  const rate = has("channel_decay") ? gates.channel_decay : has("decay") ? gates.decay : 1;
  return {
    alpha: scaled(rate, key.map(() => 1)),
    erase: has("erase") ? scaled(gates.erase, key) : has("beta") ? scaled(gates.beta, key) : key.map(() => 0),
    write: has("write") ? scaled(gates.write, value) : has("beta") ? scaled(gates.beta, value) : value,
  };
};

/** S_t = (I − k eᵀ) diag(α) S_{t-1} + k zᵀ in its steps; states are lists of rows, a row for each key channel. */
const advance = (S, key, { alpha, erase, write }) => {
  const faded = S.map((row, i) => scaled(alpha[i], row));
  const read = answer(faded, erase);
  const erased = key.map((k) => scaled(-k, read));
  const written = key.map((k) => scaled(k, write));
  const after = faded.map((row, i) => row.map((x, j) => x + (written[i][j] + erased[i][j])));
  return { before: S, faded, read, erased, written, after };
};

/** Sᵀ q */
const answer = (S, q) => S[0].map((_, j) => S.reduce((sum, row, i) => sum + row[j] * q[i], 0));

const zeros = (rows, columns) => Array.from({ length: rows }, () => Array(columns).fill(0));

// --- The page ---

const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  node.append(...children);
  return node;
};

const svg = (tag, attributes = {}, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

const shown = (x, digits = 2) => (Number.isFinite(x) ? x.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−") : "–");

/** A number on the page: rounded for the eye, whole in `data-value`. */
const figure = (tag, x, attributes = {}, digits = 2) => make(tag, { "data-value": x, ...attributes }, shown(x, digits));

/** A table of numbers whose shade grows with their size; the sign is in the number and in the hue. */
const heat = (rows, { name, top, tone = "state", labels = [], heads = [] }) => {
  const body = rows.map((row, i) => {
    const cells = row.map((x, j) => {
      const cell = figure("td", x, { "data-cell": `${name}.${i}.${j}`, class: x < 0 ? "negative" : null });
      cell.style.setProperty("--weight", `${Math.round(Math.min(50, (50 * Math.abs(x)) / top))}%`);
      return cell;
    });
    return make("tr", {}, ...(labels.length ? [make("th", { scope: "row" }, labels[i])] : []), ...cells);
  });
  const corner = labels.length ? [make("td")] : [];
  const head = heads.length ? [make("thead", {}, make("tr", {}, ...corner, ...heads.map((h) => make("th", { scope: "col" }, h))))] : [];
  return make("table", { class: `piece-heat ${tone}` }, ...head, make("tbody", {}, ...body));
};

/** The piece's box. JupyterLab takes arrow keys for commands of its own unless the focused element says otherwise. */
const frame = (el, label) => {
  const box = make("div", { class: "piece", role: "group", "aria-label": label });
  box.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
  el.replaceChildren(box);
  return box;
};

/** An id that no other piece of the page has. */
const fresh = () => `piece-${(globalThis.lineagePieceIds = (globalThis.lineagePieceIds ?? 0) + 1)}`;

/** A labelled slider; `change` gets its number while it moves. */
const slider = ({ label, low, high, step, value, name, tone = "", digits = 2, change }) => {
  const id = fresh();
  const input = make("input", { id, type: "range", min: low, max: high, step, "data-setting": name });
  const output = make("output", { for: id });
  const set = (x) => {
    input.value = x;
    output.textContent = shown(Number(x), digits);
  };
  input.addEventListener("input", () => {
    output.textContent = shown(Number(input.value), digits);
    change(Number(input.value));
  });
  set(value);
  return { node: make("div", { class: `piece-slider ${tone}` }, make("label", { for: id }, label), input, output), set };
};

const choice = ({ label, options, value, name, change }) => {
  const id = fresh();
  const menu = make("select", { id, "data-setting": name });
  for (const [key, text] of Object.entries(options)) menu.append(make("option", { value: key }, text));
  menu.value = value;
  menu.addEventListener("change", () => change(menu.value));
  return { node: make("div", { class: "piece-choice" }, make("label", { for: id }, label), menu), set: (x) => (menu.value = x) };
};

const button = (text, label, click) => {
  const node = make("button", { type: "button", "aria-label": label, title: label }, text);
  node.addEventListener("click", click);
  return node;
};

/** A button that does nothing at the moment. A disabled one would take the keyboard's focus away from the piece. */
const unusable = (node, is) => node.setAttribute("aria-disabled", is);

/** Arrow keys, Home and End move a position; sliders and menus inside keep their own keys. */
const arrows = (node, last, get, set) =>
  node.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select") || event.altKey || event.ctrlKey || event.metaKey) return;
    const to = { ArrowLeft: get() - 1, ArrowRight: get() + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    set(Math.max(0, Math.min(last, to)));
  });

// --- A piece and its settings ---

/** The settings of a model, and `set({name: value, …})`, which tells the kernel where there is one. */
const settingsOf = (model, names) => ({
  get: () => Object.fromEntries(names.map((name) => [name, model.get(name)])),
  set: (changes) => {
    for (const [name, value] of Object.entries(changes)) model.set(name, value);
    model.save_changes();
  },
});

/** Draw now and, once a frame, after every change of a setting; returns what ends it. */
const drawOnChange = (model, names, draw) => {
  let waiting = 0;
  const later = () => (waiting ||= requestAnimationFrame(() => ((waiting = 0), draw())));
  for (const name of names) model.on(`change:${name}`, later);
  draw();
  return () => {
    cancelAnimationFrame(waiting);
    for (const name of names) model.off(`change:${name}`, later);
  };
};

/** Compare what `compute` says with what the library said, and say so on the page. */
const verify = (box, fixtures, compute) => {
  let worst = 0;
  for (const { settings, values } of fixtures) {
    const ours = compute(settings);
    if (ours.length !== values.length) worst = Infinity;
    values.forEach((x, i) => (worst = Math.max(worst, Math.abs(ours[i] - x) / Math.max(1, Math.abs(x)) || (ours[i] === x ? 0 : Infinity))));
  }
  box.setAttribute("data-checked", fixtures.length);
  box.setAttribute("data-worst", worst);
  if (fixtures.length && worst <= 1e-9) return;
  const words = fixtures.length ? `they differ by up to ${worst.toExponential(1)}` : "there was nothing to compare with";
  box.prepend(make("p", { class: "piece-error", role: "alert" }, `These numbers are not those of the library: ${words}.`));
};
