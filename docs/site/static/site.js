// Search, and buttons that copy commands. The index is a script rather than JSON, so that it also loads from a disk.
'use strict'

const root = document.documentElement.dataset.root
const input = document.getElementById('q')
const hits = document.getElementById('hits')
let index

// Each entry is a part of a page: [address, title of the page, heading, text].
globalThis.lockstepSearch = (entries) => {
  const lower = (texts) => texts.map((s) => s.toLowerCase())
  index = entries.map(([href, title, heading, text]) => ({ href, title, heading, text, in: lower([title, heading, text]) }))
  show()
}

function load() {
  if (document.getElementById('index')) return
  const script = Object.assign(document.createElement('script'), { id: 'index', src: root + 'search-index.js' })
  script.onerror = () => script.remove()
  document.head.append(script)
}

// An entry is found if it has every word; a word in a title or a heading counts more than one in the text.
function score(entry, words) {
  let sum = 0
  for (const word of words) {
    const [title, heading, text] = entry.in.map((s) => s.includes(word))
    if (!title && !heading && !text) return 0
    sum += (title ? 6 : 0) + (heading ? 8 : 0) + (text ? 1 : 0)
  }
  return sum + (words.join(' ') === entry.in[1] || (!entry.heading && words.join(' ') === entry.in[0]) ? 20 : 0)
}

function excerpt(entry, word) {
  const at = Math.max(0, entry.in[2].indexOf(word) - 50)
  return (at ? '… ' : '') + entry.text.slice(at, at + 150)
}

function show() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean)
  hits.hidden = words.length === 0 || !index
  if (hits.hidden) return
  const found = index
    .map((entry) => ({ entry, score: score(entry, words) }))
    .filter((f) => f.score > 0)
    .sort((a, b) => b.score - a.score)
    .slice(0, 20)
  hits.replaceChildren(
    ...found.map(({ entry }) => {
      const name = entry.heading ? `${entry.title}: ${entry.heading}` : entry.title
      const link = Object.assign(document.createElement('a'), { href: root + entry.href, textContent: name })
      link.append(Object.assign(document.createElement('small'), { textContent: excerpt(entry, words[0]) }))
      const item = document.createElement('li')
      item.append(link)
      return item
    }),
  )
  if (found.length === 0) hits.append(Object.assign(document.createElement('li'), { textContent: 'No results' }))
}

input.disabled = false
input.addEventListener('focus', load)
input.addEventListener('input', () => {
  load()
  show()
})
document.addEventListener('keydown', (event) => {
  if (event.key === '/' && !event.ctrlKey && !event.metaKey && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    event.preventDefault()
    input.focus()
  }
  if (event.key === 'Escape') hits.hidden = true
  if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
    const links = [...hits.querySelectorAll('a')]
    const at = links.indexOf(document.activeElement)
    if (hits.hidden || links.length === 0 || (at < 0 && document.activeElement !== input)) return
    event.preventDefault()
    const to = at + (event.key === 'ArrowDown' ? 1 : -1)
    if (to < 0) input.focus()
    else links[Math.min(to, links.length - 1)].focus()
  }
})
document.addEventListener('click', (event) => {
  if (!event.target.closest('.search')) hits.hidden = true
})

for (const block of document.querySelectorAll('pre')) {
  if (!navigator.clipboard) break
  const button = Object.assign(document.createElement('button'), { type: 'button', className: 'copy', textContent: 'Copy' })
  const text = block.textContent
  button.addEventListener('click', () => navigator.clipboard.writeText(text).then(() => (button.textContent = 'Copied')))
  block.append(button)
}
