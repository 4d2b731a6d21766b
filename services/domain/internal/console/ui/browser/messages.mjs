// Pictures of each default message of notifications, in light and dark, as Slack, Teams, Mattermost, Discord and a mail reader show it: what
// the service sends, drawn by a page of our own with the colours of each. `make console-test` runs it; SHOTS=folder keeps the pictures.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { check, launch, shot } from './page.mjs'

const file = fileURLToPath(new URL('../../../core/notify/testdata/messages.json', import.meta.url))
const all = JSON.parse(await readFile(file, 'utf8'))

let browser
before(async () => {
  browser = await launch()
})
after(() => browser?.close())

const escape = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`)
/** Slack's text: its three entities, and the one form of link that the service writes. */
const mrkdwn = (text) =>
  text.replace(/<(https:[^|>]+)\|([^>]+)>/g, '<a href="$1">$2</a>').replace(/\n/g, '<br>')
/** Markdown whose every special character is escaped: what is left is text. */
const markdown = (text) => {
  assert.ok(!/(^|[^\\])[*_`[\]]/.test(text), `found markup in ${text}`)
  return escape(text.replace(/\\(.)/g, '$1').replace(/\u200b/g, '')).replace(/\n/g, '<br>')
}
const button = (text, style) => `<button type="button" class="${style ?? ''}">${escape(text)}</button>`

const draw = {
  slack: ({ text, blocks }) =>
    blocks
      .map((b) => {
        switch (b.type) {
          case 'header': return `<h2>${escape(b.text.text)}</h2>`
          case 'section': return `<p>${mrkdwn(b.text.text)}</p>`
          case 'context': return `<p class="faint">${b.elements.map((e) => mrkdwn(e.text)).join(' ')}</p>`
          case 'actions': return `<p>${b.elements.map((e) => button(e.text.text, e.style)).join(' ')}</p>`
          default: throw new Error(`found a block of type ${b.type}`)
        }
      })
      .join('') + `<p class="aloud">Read aloud: ${mrkdwn(text)}</p>`,
  teams: ({ attachments: [{ content }] }) =>
    content.body
      .map(({ inlines: [run] }, i) => (i === 0 ? `<h2 class="${run.color === 'Attention' ? 'attention' : ''}">${escape(run.text)}</h2>` : `<p>${escape(run.text)}</p>`))
      .join('') + (content.actions ?? []).map((a) => button(a.title)).join(' ') + `<p class="aloud">Read aloud: ${escape(content.speak)}</p>`,
  mattermost: ({ props: { attachments: [a] } }) =>
    `<div class="bar" style="border-color:${a.color}"><h2><a href="${escape(a.title_link)}">${markdown(a.title)}</a></h2><p>${markdown(a.text)}</p>` +
    `${(a.actions ?? []).map((one) => button(one.name, one.style)).join(' ')}</div><p class="aloud">Read aloud: ${markdown(a.fallback)}</p>`,
  discord: ({ embeds: [e] }) =>
    `<div class="bar" style="border-color:#${e.color.toString(16).padStart(6, '0')}"><h2><a href="${escape(e.url)}">${markdown(e.title)}</a></h2><p>${markdown(e.description)}</p></div>`,
}

const look = {
  slack: { light: ['#ffffff', '#1d1c1d', '#1264a3'], dark: ['#1a1d21', '#d1d2d3', '#6cb8f0'] },
  teams: { light: ['#ffffff', '#242424', '#4f52b2'], dark: ['#292929', '#ffffff', '#a8a9f0'] },
  mattermost: { light: ['#ffffff', '#3f4350', '#1c58d9'], dark: ['#090a0b', '#dddddd', '#8fb4ff'] },
  discord: { light: ['#ffffff', '#313338', '#0058a8'], dark: ['#313338', '#dbdee1', '#4fb4ff'] },
}

function page(kind, mode, messages) {
  const [background, text, link] = look[kind][mode]
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${kind}, ${mode}</title><style>
    body{background:${background};color:${text};font:15px/1.4 sans-serif;margin:16px;columns:3 400px;column-gap:24px}
    article{break-inside:avoid;border-top:1px solid;padding:8px 0}
    h1{font-size:12px;margin:0 0 6px} h2{font-size:16px;margin:0 0 4px} p{margin:4px 0} a{color:${link}}
    .bar{border-left:4px solid;padding-left:8px} .aloud{font-size:12px}
    .attention{color:${mode === 'dark' ? '#ff9a9a' : '#b10e1c'}}
    button{font:inherit;padding:2px 10px;border:1px solid;border-radius:4px;background:none;color:inherit}
    .primary,.success{background:#007a5a;color:#fff}.danger{background:#c62828;color:#fff}
  </style></head><body><main>${messages.map((m) => `<article><h1>${m.event}</h1>${draw[kind](m.body)}</article>`).join('')}</main></body></html>`
}

/** An empty page of its own context, in light or dark. */
async function empty(mode) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, colorScheme: mode, javaScriptEnabled: true })
  return { context, page: await context.newPage() }
}

for (const kind of Object.keys(draw)) {
  for (const mode of ['light', 'dark']) {
    test(`default messages in ${kind}, ${mode}`, async () => {
      const messages = all.filter((m) => m.kind === kind)
      assert.ok(messages.length >= 15, `found ${messages.length} messages`)
      const at = await empty(mode)
      await at.page.setContent(page(kind, mode, messages))
      await check(at.page, `${kind} ${mode}`)
      // Everything is shown.
      const shown = (await at.page.locator('main').innerText()).replaceAll('\n', ' ')
      for (const m of messages) for (const line of m.lines) assert.ok(shown.includes(line), `${m.event}: found no ${line}`)
      await shot(at.page, `messages-${kind}-${mode}`)
      await at.context.close()
    })
  }
}

for (const mode of ['light', 'dark']) {
  test(`default messages as mail, ${mode}`, async () => {
    for (const m of all.filter((one) => one.kind === 'email')) {
      const at = await empty(mode)
      await at.page.setViewportSize({ width: 640, height: 320 })
      await at.page.setContent(m.body.html)
      // The canvas of Chromium in the dark, which axe takes for white.
      if (mode === 'dark') await at.page.addStyleTag({ content: 'html{background:#121212}' })
      await check(at.page, `${m.event} as mail, ${mode}`)
      const shown = (await at.page.locator('body').innerText()).replaceAll('\n', ' ')
      for (const line of m.lines) {
        assert.ok(shown.includes(line), `${m.event}: found no ${line} in the HTML`)
        assert.ok(m.body.text.includes(line), `${m.event}: found no ${line} in the text`)
      }
      assert.equal(m.body.subject, m.lines[0])
      await shot(at.page, `messages-mail-${mode}-${m.event}`, { fullPage: false })
      await at.context.close()
    }
  })
}
