// Far from all data: the confidence of 0.5 + α(x − 0.5), without clipping, as α grows.

import { post } from "./api.js";
import { Chart } from "./chart.js";
import { byId, legend, say } from "./elements.js";
import { near, ticks, times } from "./format.js";
import { fill } from "./parts.js";
import { show, stretched } from "./picture.js";

const FARTHEST = 1024;
const COUNT = 33; // factors that the service takes in one request
const FACTORS = Array.from({ length: COUNT }, (_, place) => Number((FARTHEST ** (place / (COUNT - 1))).toPrecision(4)));
const CLOSE = 0.005; // to 1/K, for saying that the confidence has fallen to it

export class Far {
  constructor(model) {
    Object.assign(this, { model, curve: null });
    this.slider = byId("factor");
    this.slider.max = COUNT - 1;
    this.slider.addEventListener("input", () => this.show());
    const choose = (factor) => {
      this.slider.value = this.curve.factors.indexOf(factor);
      this.show();
    };
    const label = "Confidence over the stretch α";
    this.chart = new Chart(byId("far-chart"), { label, height: 230, paint: (chart) => this.paint(chart), choose });
    legend("far-legend", [
      ["line bound", "confidence"],
      ["line floor", `a guess, ${near(model.floor)}`],
    ]);
  }

  /** `pixels` is the image at the model's size, to be shown stretched. */
  async load(image, pixels, signal) {
    this.curve = await post("v1/far", image, { factors: FACTORS.join(",") }, signal);
    this.pixels = pixels;
    this.slider.value = 0;
    byId("far-note").textContent = this.ending();
    fill("far");
    this.show();
  }

  show() {
    const at = Number(this.slider.value);
    const { factors, confidence } = this.curve;
    byId("factor-value").textContent = times(factors[at]);
    this.slider.setAttribute("aria-valuetext", `α = ${times(factors[at])}`);
    const claim = say(byId("far-claim"));
    if (at === 0) claim`As it is, its confidence is ${near(confidence[0])}.`;
    else claim`Stretched ${times(factors[at])} times, its confidence is ${near(confidence[at])}.`;
    show(byId("far-picture"), stretched(this.pixels, factors[at]));
    const ends = `from ${near(confidence[0])} to ${near(confidence.at(-1))}`;
    this.chart.describe(`Confidence over the stretch α, ${ends}. ${this.ending()}`);
    this.chart.update();
  }

  /** What has become of the confidence at the far end. The theorem has a condition, and some images do not meet it. */
  ending() {
    const { floor, p_in_ceiling: largest } = this.model;
    const { factors, confidence, p_in: inside } = this.curve;
    const [end, alpha] = [confidence.at(-1), times(factors.at(-1))];
    const there = `At α = ${alpha} it is ${near(end)}`;
    if (end - floor < CLOSE) return `${there}, no more than a guess: it does not know, and says so.`;
    if (inside.at(-1) >= largest - 1e-6) { // none of the discriminator’s last hidden units responds
      return (
        `In this direction it ends at ${near(end)}: no unit of the discriminator’s last hidden layer responds, and ` +
        "such directions are the ones that the theorem leaves out."
      );
    }
    return `${there}, not yet a guess.`;
  }

  paint(chart) {
    if (!this.curve) return [];
    const { factors, confidence, p_in: inside } = this.curve;
    const plane = chart.plane({ x: [1, FARTHEST], y: [0, 1], logarithmic: true });
    const powers = chart.size.width < 420 ? [1, 4, 16, 64, 256, 1024] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
    const across = powers.map((value) => ({ value, text: String(value) }));
    plane.axes({ across, up: ticks(0, 1), xName: "α, stretch away from mid-grey", yName: "confidence" });
    plane.level(this.model.floor, "floor");
    plane.line(factors, confidence, "bound");
    const at = Number(this.slider.value);
    plane.upright(factors[at], "chosen", 0, confidence[at]);
    plane.dot(factors[at], confidence[at], "bound");
    return factors.map((x, place) => {
      const [y, share] = [confidence[place], inside[place]];
      return { x, y, text: `α = ${times(x)}: confidence ${near(y)}, p(in) ${near(share)}` };
    });
  }
}
