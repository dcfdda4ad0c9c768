// Lets long names break after an underscore or a dot, and in code between words. Copied text stays the same.
const NAMES =
  "article :is(code.literal, dt.sig .descname, h1), article .field-list :is(p, li), .related-pages .title";
document.addEventListener("DOMContentLoaded", () => {
  for (const name of document.querySelectorAll(NAMES)) {
    for (const node of [...name.querySelectorAll("span, *"), name].flatMap((element) => [...element.childNodes])) {
      if (node.nodeType !== Node.TEXT_NODE || node.data.length < 20) continue;
      const isCode = node.parentElement.closest("code, dt.sig");
      const parts = node.data.split(isCode ? /(?<=[_.])(?=\w)|(?<=[a-z])(?=[A-Z])/ : /(?<=[_.])(?=\w)(?!h\b)/);
      node.replaceWith(...parts.flatMap((part, place) => (place ? [document.createElement("wbr"), part] : [part])));
    }
  }
});
