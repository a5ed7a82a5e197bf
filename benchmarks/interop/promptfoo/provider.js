// A mock model that adds; `wrong` makes odd totals wrong, `down` names a question that fails.
module.exports = class Mock {
  constructor(options) {
    this.settings = options.config || {};
    this.name = options.id || 'mock';
  }

  id() {
    return this.name;
  }

  async callApi(prompt) {
    const [a, b] = prompt.match(/\d+/g).map(Number);
    if (this.settings.down === `${a}+${b}`) {
      return { error: 'the mock provider is down' };
    }
    const total = a + b + (this.settings.wrong && (a + b) % 2 ? 1 : 0);
    return { output: `${total}`, tokenUsage: { total: 5, prompt: 3, completion: 2 }, cost: 0.001 };
  }
};
