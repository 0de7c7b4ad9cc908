// Numbers as text. A bound is rounded up and a radius down, so that what is read is still proven.

const DIGITS = 3;
const SCALE = 10 ** DIGITS;
const SMALLEST = 1 / SCALE;
export const FAINT = 0.005; // closer to a guess than this is practically no confidence

/** A probability to three digits; one that is neither 0 nor 1 is not shown as such. */
export function near(value) {
  if (value > 0 && value < SMALLEST / 2) return `< ${SMALLEST}`;
  if (value < 1 && value > 1 - SMALLEST / 2) return `> ${1 - SMALLEST}`;
  return value.toFixed(DIGITS);
}

/** The same within a sentence. */
export function said(value) {
  return near(value).replace("> ", "more than ").replace("< ", "less than ");
}

/** A confidence in words where it says almost nothing or almost all, with its number. `floor` is a guess, 1/K. */
export function plain(value, floor) {
  if (value - floor < FAINT) return `practically no confidence (${near(value)})`;
  if (1 - value < FAINT) return `practically certain (${near(value)})`;
  return `a confidence of ${said(value)}`;
}

/** A bound from above, rounded up; with a digit more where it is close to `floor`, the least confidence there is. */
export function up(value, floor) {
  const digits = value - floor < 0.01 ? DIGITS + 1 : DIGITS;
  const rounded = Math.ceil(value * 10 ** digits) / 10 ** digits;
  return Math.min(rounded, Math.max(1, value)).toFixed(digits);
}

/** A radius: as many digits as tell it apart, rounded down. */
export function radius(value) {
  const digits = value >= 0.1 ? 3 : 4;
  return (Math.floor(value * 10 ** digits) / 10 ** digits).toFixed(digits);
}

/** A radius from the slider, which has four digits at most. */
export function short(value) {
  return String(Number(value.toPrecision(4)));
}

/** How many of the 256 shades of a pixel a radius is. */
export function shades(eps) {
  return String(Number((eps * 255).toPrecision(3)));
}

/** A factor: 1, 2.83, 1024. */
export function times(value) {
  return value >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

/** At most `most` multiples in [low, high] of the smallest such step that is 1, 2 or 5 times a power of ten. */
export function ticks(low, high, most = 6) {
  const power = 10 ** Math.floor(Math.log10((high - low) / most));
  for (const factor of [1, 2, 5, 10, 20, 50]) {
    const step = factor * power;
    const first = Math.ceil(low / step - 1e-9);
    const last = Math.floor(high / step + 1e-9);
    if (last - first >= most) continue;
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return Array.from({ length: last - first + 1 }, (_, place) => {
      const value = (first + place) * step;
      return { value, text: value.toFixed(Math.min(digits, 12)) };
    });
  }
  return [];
}
