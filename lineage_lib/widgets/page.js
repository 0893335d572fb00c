// A piece on a page without a kernel: its settings from the page, its data from the book's build.

const mount = (name, { render }, data) => {
  for (const el of document.querySelectorAll(`.lineage-piece[data-piece="${name}"]`)) {
    const values = { ...JSON.parse(el.dataset.settings), data };
    const listeners = {};
    const model = {
      get: (key) => values[key],
      set: (key, value) => {
        values[key] = value;
        for (const listener of listeners[`change:${key}`] ?? []) listener();
      },
      save_changes: () => {},
      on: (event, listener) => (listeners[event] ??= []).push(listener),
      off: (event, listener) => (listeners[event] = (listeners[event] ?? []).filter((one) => one !== listener)),
    };
    render({ model, el });
  }
};
