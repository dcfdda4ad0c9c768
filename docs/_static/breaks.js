// Lets long names break after an underscore, a dot or a word in them, and not within a word. Copied text stays the same.
document.addEventListener("DOMContentLoaded", () => {
  for (const name of document.querySelectorAll("article code.literal, article dt.sig .descname")) {
    for (const node of [...name.querySelectorAll("span, *"), name].flatMap((element) => [...element.childNodes])) {
      if (node.nodeType !== Node.TEXT_NODE || node.data.length < 24) continue;
      const parts = node.data.split(/(?<=[_.])(?=\w)|(?<=[a-z])(?=[A-Z])/);
      node.replaceWith(...parts.flatMap((part, place) => (place ? [document.createElement("wbr"), part] : [part])));
    }
  }
});
