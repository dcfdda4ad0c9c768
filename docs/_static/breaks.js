// Lets long names break after an underscore, a dot or a word in them, and not within a word. Copied text stays the same.
const NAMES =
  "article :is(code.literal, dt.sig .descname, h1), article .field-list :is(p, li), .related-pages .title";
document.addEventListener("DOMContentLoaded", () => {
  for (const name of document.querySelectorAll(NAMES)) {
    for (const node of [...name.querySelectorAll("span, *"), name].flatMap((element) => [...element.childNodes])) {
      if (node.nodeType !== Node.TEXT_NODE || node.data.length < 20) continue;
      const parts = node.data.split(/(?<=[_.])(?=\w)(?!h\b)|(?<=[a-z])(?=[A-Z])/);
      node.replaceWith(...parts.flatMap((part, place) => (place ? [document.createElement("wbr"), part] : [part])));
    }
  }
});
