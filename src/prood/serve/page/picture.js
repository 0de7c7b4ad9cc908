// Pictures in the browser: fitted to the model's size as the service fits them, stretched, and compared.

import { Problem } from "./api.js";

/** A picture at the model's size, close to what the service makes of it: the largest cut of its aspect, resized. */
export async function fitted(blob, [channels, height, width]) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob, { imageOrientation: "from-image" });
  } catch {
    throw new Problem("This is not a picture that can be read. Use a PNG, JPEG, WebP, BMP or GIF file.");
  }
  const scale = Math.min(bitmap.width / width, bitmap.height / height);
  const cut = [scale * width, scale * height];
  const place = [(bitmap.width - cut[0]) / 2, (bitmap.height - cut[1]) / 2];
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillRect(0, 0, width, height); // transparent pixels show black, as in the service
  context.imageSmoothingEnabled = scale !== 1;
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, ...place, ...cut, 0, 0, width, height);
  bitmap.close();
  const image = context.getImageData(0, 0, width, height);
  return channels === 1 ? mapped(image, (value, _, at) => luminance(image.data, at)) : image;
}

/** 0.5 + α(x − 0.5), cut to what a screen can show. */
export function stretched(image, factor) {
  return mapped(image, (value) => 127.5 + factor * (value - 127.5));
}

/** What was changed, per pixel and channel: mid-grey is nothing, black and white are −ε and +ε. */
export async function change(before, after, eps) {
  const [first, second] = await Promise.all([pixels(before), pixels(after)]);
  const reach = Math.max(255 * eps, 1);
  return mapped(second, (value, place) => 127.5 + (127.5 * (value - first.data[place])) / reach);
}

export function show(canvas, image) {
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** The pixels of an <img>. */
async function pixels(img) {
  await img.decode();
  const canvas = new OffscreenCanvas(img.naturalWidth, img.naturalHeight);
  const context = canvas.getContext("2d");
  context.drawImage(img, 0, 0);
  return context.getImageData(0, 0, canvas.width, canvas.height);
}

/** Apply a function of (value, place, start of the pixel) to every colour; all pixels opaque. */
function mapped({ data, width, height }, change) {
  const made = new ImageData(width, height);
  data.forEach((value, place) => {
    made.data[place] = place % 4 === 3 ? 255 : change(value, place, place - (place % 4));
  });
  return made;
}

function luminance(data, at) {
  return 0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2];
}
