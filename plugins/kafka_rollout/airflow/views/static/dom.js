// A page as plain objects, and a function that changes the document where it differs. Texts are only ever text nodes,
// so that the name of a topic or the reason of an approver is never markup.

const ONCE = new Set(["open", "value", "checked"]); // the reader changes them afterwards

// A child is an object of h(), a text or a number; null, undefined and false are left out. `key` tells an element from
// its neighbors; `on`: event → function.
export function h(tag, attributes, ...children) {
  const { key, on = {}, ...attrs } = attributes ?? {};
  const shown = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  return { tag, key, on, attrs, children: shown.map((child) => (typeof child === "object" ? child : { text: String(child) })) };
}

// Make the children of `parent` equal to `wanted`. An element that stays keeps its focus, selection and scroll position.
export function patch(parent, wanted) {
  const before = [...parent.childNodes];
  const keyed = new Map(before.filter((node) => node.shown?.key !== undefined).map((node) => [node.shown.key, node]));
  const others = before.filter((node) => node.shown && node.shown.key === undefined);
  const nodes = wanted.map((one) => {
    let node = keyed.get(one.key);
    if (one.key === undefined) {
      const at = others.findIndex((other) => other.shown.tag === one.tag);
      node = at < 0 ? undefined : others.splice(0, at + 1).pop();
    } else if (node && node.shown.tag !== one.tag) node = undefined;
    return show(node ?? create(one), one);
  });
  const stays = new Set(nodes);
  for (const node of before) if (!stays.has(node)) node.remove();
  let cursor = parent.firstChild;
  for (const node of nodes) {
    if (node === cursor) cursor = cursor.nextSibling;
    else parent.insertBefore(node, cursor);
  }
}

function create(one) {
  const node = one.tag === undefined ? document.createTextNode("") : document.createElement(one.tag);
  for (const [name, value] of Object.entries(one.attrs ?? {})) if (ONCE.has(name)) setAttribute(node, name, value);
  for (const event of Object.keys(one.on ?? {})) node.addEventListener(event, (happened) => node.shown.on[event]?.(happened));
  return node;
}

function show(node, one) {
  if (one.tag === undefined) {
    if (node.nodeValue !== one.text) node.nodeValue = one.text;
  } else {
    const before = node.shown?.attrs ?? {};
    for (const name of Object.keys({ ...before, ...one.attrs })) {
      if (!ONCE.has(name) && before[name] !== one.attrs[name]) setAttribute(node, name, one.attrs[name]);
    }
    patch(node, one.children);
  }
  node.shown = one;
  return node;
}

function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}
