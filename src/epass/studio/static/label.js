export function mount(root, studio) {
  return { show() { root.textContent = `${studio.state.project.images} images`; }, hide() {} };
}
