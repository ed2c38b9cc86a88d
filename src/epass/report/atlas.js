"use strict";
// The maps of a report: what is under the pointer, the finger or the arrow keys shows its image and its answer.
for (const atlas of document.querySelectorAll(".atlas")) {
  const facts = JSON.parse(atlas.dataset.atlas);
  const { places, labels, predicted, confidence, classes, names, larger, columns, width, height } = facts;
  const maps = [...atlas.querySelectorAll("svg")];
  const card = atlas.querySelector(".card");
  const thumb = card.querySelector(".thumb"), sheet = thumb.className;
  const words = card.querySelector(".words");
  const reach = 40; // thousandths of a map, around the pointer
  const scale = Math.max(1, Math.round(96 / Math.max(width, height)));
  let shown = -1;

  const show = (image, map) => {
    shown = image;
    maps.forEach((each, number) => {
      const ring = each.querySelector(".ring");
      ring.setAttribute("cx", places[number][2 * image]);
      ring.setAttribute("cy", places[number][2 * image + 1]);
      ring.style.display = "inline";
    });
    thumb.removeAttribute("style");
    thumb.className = larger[image] ? `photo ${larger[image]}` : sheet; // a mistake has a picture of its own
    if (!larger[image]) {
      thumb.style.width = `${width * scale}px`;
      thumb.style.height = `${height * scale}px`;
      thumb.style.backgroundSize = `${columns * width * scale}px auto`;
      thumb.style.backgroundPosition =
        `${-(image % columns) * width * scale}px ${-Math.floor(image / columns) * height * scale}px`;
    }
    const right = labels[image] === predicted[image];
    words.replaceChildren();
    const line = (text, strong) => {
      const part = document.createElement(strong ? "b" : "span");
      part.textContent = text;
      words.append(part);
    };
    line(`is ${classes[labels[image]]}`, true);
    line(`predicted ${classes[predicted[image]]}, ${confidence[image]} % sure`, false);
    line(right ? "right" : "wrong", !right);
    line(names[image], false);
    card.classList.toggle("wrong", !right);
    card.hidden = false;
    const box = map.getBoundingClientRect(), home = atlas.getBoundingClientRect(), number = maps.indexOf(map);
    const x = box.left - home.left + (places[number][2 * image] / 1000) * box.width;
    const y = box.top - home.top + (places[number][2 * image + 1] / 1000) * box.height;
    const left = x + 14 + card.offsetWidth > home.width ? x - 14 - card.offsetWidth : x + 14;
    card.style.left = `${Math.max(0, Math.min(left, home.width - card.offsetWidth))}px`;
    const below = y + 14 + card.offsetHeight <= home.height; // or above, so that nothing of it is cut
    card.style.top = `${below ? y + 14 : Math.max(0, y - 14 - card.offsetHeight)}px`;
  };

  const hide = () => {
    shown = -1;
    card.hidden = true;
    for (const map of maps) map.querySelector(".ring").style.display = "none";
  };

  const nearest = (number, x, y, allowed) => {
    let best = -1, distance = Infinity;
    for (let image = 0; image < labels.length; image += 1) {
      const right = places[number][2 * image] - x, down = places[number][2 * image + 1] - y;
      const away = right * right + down * down;
      if (away < distance && allowed(right, down, away)) [best, distance] = [image, away];
    }
    return best;
  };

  const arrows = {
    ArrowRight: (right, down) => right > 0 && Math.abs(down) <= right,
    ArrowLeft: (right, down) => right < 0 && Math.abs(down) <= -right,
    ArrowDown: (right, down) => down > 0 && Math.abs(right) <= down,
    ArrowUp: (right, down) => down < 0 && Math.abs(right) <= -down,
  };

  maps.forEach((map, number) => {
    const point = (event) => {
      const box = map.getBoundingClientRect();
      const x = (1000 * (event.clientX - box.left)) / box.width, y = (1000 * (event.clientY - box.top)) / box.height;
      const image = nearest(number, x, y, (right, down, away) => away <= reach * reach);
      if (image < 0) hide();
      else show(image, map);
    };
    map.addEventListener("pointermove", point);
    map.addEventListener("pointerdown", point);
    map.addEventListener("pointerleave", (event) => event.pointerType === "touch" || hide());
    map.addEventListener("focus", () => shown < 0 && show(nearest(number, 500, 500, () => true), map));
    map.addEventListener("blur", hide);
    map.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      const allowed = arrows[event.key];
      if (!allowed) return;
      event.preventDefault();
      const from = Math.max(0, shown);
      const image = nearest(number, places[number][2 * from], places[number][2 * from + 1], allowed);
      if (image >= 0) show(image, map);
    });
  });
}
