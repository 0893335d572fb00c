// The search page shows the beginning of each page found as plain text: typeset the formulas in it.
document.addEventListener("DOMContentLoaded", () => {
  const results = document.getElementById("search-results");
  if (!results) return;
  window.MathJax = { options: { enableMenu: false }, startup: { typeset: false } };
  const script = document.createElement("script");
  script.src = "vendor/mathjax/tex-mml-chtml.js";
  script.onload = () => {
    let waiting;
    const typeset = () => {
      clearTimeout(waiting); // results arrive one by one
      waiting = setTimeout(() => MathJax.typesetPromise([results]), 200);
    };
    new MutationObserver((changes) => {
      if (changes.some((c) => [...c.addedNodes].some((n) => n.nodeName !== "MJX-CONTAINER" && n.nodeType === 1)))
        typeset();
    }).observe(results, { childList: true, subtree: true });
    typeset();
  };
  document.head.append(script);
});
