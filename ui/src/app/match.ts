/** How well a text answers what was typed: letters in order, better at the start of words. 0 is no match. */
export function matchScore(text: string, typed: string): number {
  const haystack = text.toLowerCase();
  const needle = typed.toLowerCase().replaceAll(" ", "");
  const whole = haystack.indexOf(typed.toLowerCase());
  if (whole >= 0) return 1000 - whole;
  let score = 0;
  let from = 0;
  for (const letter of needle) {
    const at = haystack.indexOf(letter, from);
    if (at < 0) return 0;
    const startsWord = at === 0 || /[\s_./-]/.test(haystack[at - 1] ?? "");
    score += startsWord ? 10 : at === from ? 5 : 1;
    from = at + 1;
  }
  return score;
}
