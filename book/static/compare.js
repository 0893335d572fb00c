// "Compare two rules" on the family-tree page: equations part by part, and the states after the same stream.
// The data come from lineage_lib/book/family.py, which runs the library's recurrences; nothing is computed here.
(() => {
  const box = document.querySelector("div.compare-rules");
  if (!box) return;
  const data = JSON.parse(box.querySelector("script").textContent);
  const sides = ["left", "right"];
  const words = { forget: "Forget", write: "Write", read: "Read", with: "With" };
  const chosen = { left: data.default[0], right: data.default[1] };
  let token = data.tokens.length - 1;

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes))
      if (value !== null && value !== false) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const rule = (side) => data.rules[chosen[side]];
  const shown = (x, digits = 2) => (x === null ? "0/0" : x.toFixed(digits).replace(/^-(0\.0+)$/, "$1").replace("-", "−"));

  // --- The choice ---

  const select = (side) => {
    const menu = make("select", { id: `compare-${side}` });
    const groups = {};
    for (const [name, { title, family }] of Object.entries(data.rules)) {
      groups[family] ??= make("optgroup", { label: family });
      groups[family].append(make("option", { value: name }, title));
    }
    menu.append(...Object.values(groups));
    menu.addEventListener("change", () => choose({ [side]: menu.value }));
    return menu;
  };
  const menus = { left: select("left"), right: select("right") };
  const swap = make("button", { type: "button", class: "compare-swap", title: "Exchange the two rules" }, "⇄");
  swap.setAttribute("aria-label", "Exchange the two rules");
  swap.addEventListener("click", () => choose({ left: chosen.right, right: chosen.left }));
  const field = (side, label) => make("div", {}, make("label", { for: `compare-${side}` }, label), menus[side]);
  const choice = make("div", { class: "compare-choice" }, field("left", "One rule"), swap, field("right", "Another rule"));

  // --- The equations ---

  const equations = make("div", { class: "compare-equations" });
  const verdict = make("p", { class: "compare-verdict", role: "status" });

  const formula = (side, part) => {
    const tex = rule(side).parts[part];
    const cell = make("div", { class: "compare-formula", role: "cell", "data-rule": chosen[side], "data-title": rule(side).title });
    if (tex) cell.append(`\\(\\displaystyle ${part === "read" ? "\\text{output} = " : part === "write" ? "+\\; " : ""}${tex}\\)`);
    else cell.append(make("span", { class: "compare-none" }, "nothing"));
    return cell;
  };

  const drawEquations = () => {
    const parts = Object.keys(words).filter((part) => sides.some((side) => rule(side).parts[part]));
    const differ = parts.filter((part) => rule("left").parts[part] !== rule("right").parts[part]);
    const head = make("div", { class: "compare-row compare-head", role: "row" }, make("span", { role: "columnheader" }));
    for (const side of sides) head.append(make("span", { role: "columnheader" }, rule(side).title));
    const rows = parts.map((part) => {
      const differs = differ.includes(part);
      const mark = make("span", { class: "compare-mark" }, differs ? "≠ differs" : "= same");
      return make(
        "div",
        { class: `compare-row${differs ? " differs" : ""}`, role: "row", "data-part": part },
        make("div", { class: "compare-part", role: "rowheader" }, make("b", {}, words[part]), mark),
        ...sides.map((side) => formula(side, part)),
      );
    });
    equations.replaceChildren(head, ...rows);
    verdict.textContent =
      chosen.left === chosen.right
        ? "This is one rule twice."
        : differ.length === 0
          ? "The equations are the same in every part; the notes on the two rules say what else differs."
          : `${differ.length} of ${parts.length} parts differ: ${differ.map((part) => words[part].toLowerCase()).join(", ")}.`;
  };

  // --- The stream, token by token ---

  const tokens = data.tokens.map((text, t) => {
    const button = make("button", { type: "button", class: "compare-token" }, make("small", {}, `${t + 1}`), text);
    button.addEventListener("click", () => step(t));
    return button;
  });
  const back = make("button", { type: "button", class: "compare-step", "aria-label": "One token back" }, "◀");
  const on = make("button", { type: "button", class: "compare-step", "aria-label": "One token on" }, "▶");
  back.addEventListener("click", () => step(token - 1));
  on.addEventListener("click", () => step(token + 1));
  const stream = make("div", { class: "compare-stream", role: "group", "aria-label": "The stream" }, back, ...tokens, on);
  stream.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    step(token + by);
    if (document.activeElement.classList.contains("compare-token")) tokens[token].focus();
  });

  // --- The states ---

  const states = make("div", { class: "compare-states" });
  const sum = make("p", { class: "compare-sum", role: "status" });

  const entries = (side) => {
    const { rows, columns, states } = rule(side);
    return rows.flatMap((row, i) => columns.map((column, j) => [`${row}|${column}`, shown(states[token][i][j])]));
  };

  const label = (row) => {
    // "key channel 2": on a telephone the number alone
    const [, long, short] = row.match(/^(\D{4,})(\d+)$/) ?? [null, "", row];
    return [make("span", { class: "compare-long" }, long), short];
  };

  const table = (side, top, other) => {
    const { title, rows, columns, states, answers } = rule(side);
    const body = rows.map((row, i) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, ...label(row)),
        ...columns.map((column, j) => {
          const x = states[token][i][j];
          const theirs = other.get(`${row}|${column}`);
          const differs = theirs !== undefined && theirs !== shown(x);
          const cell = make("td", { class: `${x < 0 ? "negative" : ""}${differs ? " differs" : ""}`.trim() }, shown(x));
          cell.style.setProperty("--weight", `${Math.round((45 * Math.abs(x)) / top)}%`);
          return cell;
        }),
      ),
    );
    const head = make("tr", {}, make("td"), ...columns.map((column) => make("th", { scope: "col" }, column)));
    const asked = Object.entries(answers).map(([name, read]) => {
      const truth = data.truth[token][name];
      return make(
        "tr",
        { "data-name": name },
        make("th", { scope: "row" }, `${name}’s room?`),
        make("td", { class: "compare-answer" }, shown(read[token], 1)),
        make("td", {}, truth ? `was told ${truth}` : "was told nothing yet"),
      );
    });
    return make(
      "section",
      { class: "compare-state", "data-rule": chosen[side], "aria-label": title },
      make("h4", {}, title),
      make("table", { class: "compare-heat" }, make("thead", {}, head), make("tbody", {}, ...body)),
      make("table", { class: "compare-asked" }, make("tbody", {}, ...asked)),
    );
  };

  const drawStates = () => {
    const all = sides.flatMap((side) => rule(side).states.flat(2)).map(Math.abs);
    const top = Math.max(...all, 1e-9); // one scale for both rules and all tokens
    const numbers = { left: entries("left"), right: entries("right") };
    const [left, right] = [new Map(numbers.left), new Map(numbers.right)];
    states.replaceChildren(table("left", top, right), table("right", top, left));
    const shared = numbers.left.filter(([place]) => right.has(place));
    const differ = shared.filter(([place, number]) => right.get(place) !== number).length;
    const same = shared.length === left.size && left.size === right.size;
    sum.textContent =
      `After token ${token + 1} of ${data.tokens.length}, ${data.tokens[token]}: ` +
      (!same && shared.length === 0
        ? "the states have different shapes."
        : differ === 0
          ? `the ${shared.length} numbers ${same ? "of the states" : "that both states have"} are the same.`
          : `${differ} of the ${shared.length} numbers ${same ? "" : "that both states have "}differ; they are underlined.`);
    tokens.forEach((button, t) => {
      button.setAttribute("aria-pressed", t === token);
      button.classList.toggle("past", t < token);
    });
    back.setAttribute("aria-disabled", token === 0); // not disabled, which would take the keyboard's focus away
    on.setAttribute("aria-disabled", token === data.tokens.length - 1);
  };

  // --- What was fed ---

  const fed = make("div", { class: "compare-fed" });
  const drawFed = () =>
    fed.replaceChildren(
      ...sides.map((side) =>
        make(
          "div",
          {},
          make("h4", {}, rule(side).title),
          make(
            "dl",
            {},
            ...Object.entries(rule(side).fed).flatMap(([name, what]) => [
              make("dt", {}, make("code", {}, name)),
              make("dd", {}, what),
            ]),
          ),
        ),
      ),
    );
  const details = make("details", { class: "compare-details" }, make("summary", {}, "What each rule was fed"), fed);

  // --- Changing ---

  const typeset = () => {
    // The first time MathJax is not there yet: it will typeset the page, and this with it.
    if (!window.MathJax?.typesetPromise) return;
    MathJax.startup.promise = MathJax.startup.promise.then(() => {
      MathJax.typesetClear([equations]);
      return MathJax.typesetPromise([equations]);
    });
  };

  const draw = () => {
    for (const side of sides) menus[side].value = chosen[side];
    drawEquations();
    drawStates();
    drawFed();
    typeset();
  };

  const choose = (rules) => {
    Object.assign(chosen, rules);
    history.replaceState(null, "", `#compare=${chosen.left},${chosen.right}`);
    draw();
  };

  const step = (t) => {
    token = Math.min(Math.max(t, 0), data.tokens.length - 1);
    drawStates();
  };

  const fromAddress = () => {
    const [, ...names] = location.hash.match(/^#compare=([\w-]+),([\w-]+)$/) ?? [];
    if (names.length !== 2 || !names.every((name) => Object.hasOwn(data.rules, name))) return false;
    [chosen.left, chosen.right] = names;
    return true;
  };

  const asked = fromAddress();
  box.append(choice, equations, verdict, stream, states, sum, details);
  equations.setAttribute("role", "table");
  equations.setAttribute("aria-label", "The two equations, part by part");
  draw();
  if (asked) box.scrollIntoView();
  window.addEventListener("hashchange", () => {
    if (!fromAddress()) return;
    draw();
    box.scrollIntoView();
  });
})();
