/** The name of a package, from the name of its archive: `hello-0.1.0.tidemill` is `hello`. */
export function packageName(fileName: string): string {
  return fileName.replace(/\.tidemill$/, "").replace(/-v?\d[^-]*$/, "");
}
