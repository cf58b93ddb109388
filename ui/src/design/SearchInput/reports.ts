/** What a field has reported and not got back as its value yet: the value that comes back may be older than its text. */
export class Reports {
  private open: string[] = [];

  /** What the value is, or will be once all reports are back. */
  expected(value: string): string {
    return this.open.at(-1) ?? value;
  }

  add(text: string): void {
    this.open.push(text);
  }

  /** Takes a new value; returns whether it is one of the reports, and not a value from elsewhere. */
  takeBack(value: string): boolean {
    const index = this.open.indexOf(value);
    this.open = index < 0 ? [] : this.open.slice(index + 1);
    return index >= 0;
  }
}
