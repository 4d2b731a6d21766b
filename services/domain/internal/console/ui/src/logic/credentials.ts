// The forms of credentials, as a table: what each is sent as, which fields it has, and where the API has them. A new one is an entry here.
import type { CreateCredentialInput, CredentialFields } from '../api/generated'

export interface FormField {
  /** Where the input of the API has it: forge, or oauth2/tokenUrl. */
  path: string
  label: string
  help?: string
  optional?: boolean
  /** Its lines are a list. */
  list?: boolean
  /** It is text of several lines. */
  long?: boolean
  options?: Record<string, string>
}

export interface CredentialForm {
  key: string
  label: string
  kind: CreateCredentialInput['kind']
  /** What becomes of the value. */
  help: string
  /** What the value is called, and whether it has several lines. */
  value: string
  lines?: boolean
  /** What the URLs begin like. */
  urls: string
  fields: FormField[]
  /** The input that the form has although none of its fields may be filled in. */
  always?: string
  /** Whether a credential is of this form. */
  is: (c: CredentialFields) => boolean
}

const username: FormField = { path: 'username', label: 'User name' }
const forges = { '': 'none', github: 'GitHub', gitlab: 'GitLab', gitea: 'Gitea or Forgejo', bitbucket: 'Bitbucket' }
const forge: FormField = { path: 'forge', label: 'Interface of the forge', help: 'Lets programs use it for pull requests and statuses as well.', optional: true, options: forges }
const plain = (c: CredentialFields) => !c.oauth2 && !c.certificate && !c.githubApp && !c.sshKey && !c.ecr && !c.gar && !c.acr

/** All forms, in the order in which they are offered. */
export const forms: CredentialForm[] = [
  {
    key: 'registry', label: 'Registry: user name and password', kind: 'REGISTRY', value: 'Password or token', urls: 'https://registry.example.com/shop',
    help: 'Logs in to a registry of images and charts. It is sent to its host, and to where that says its tokens are issued if you add that URL too.', fields: [username], is: (c) => c.kind === 'REGISTRY' && plain(c) && c.username !== '',
  },
  {
    key: 'registry-token', label: 'Registry: token', kind: 'REGISTRY', value: 'Token', urls: 'https://registry.example.com/shop', help: 'Is sent to the registry as a bearer token.', fields: [],
    is: (c) => c.kind === 'REGISTRY' && plain(c) && c.username === '',
  },
  {
    key: 'ecr', label: 'Registry: Amazon ECR', kind: 'REGISTRY', value: 'Secret access key', urls: 'https://123456789012.dkr.ecr.eu-central-1.amazonaws.com/',
    help: 'The key signs requests for tokens of ECR, and is sent nowhere.',
    fields: [
      { path: 'ecr/accessKeyId', label: 'Access key ID' },
      { path: 'ecr/region', label: 'Region', help: 'Such as eu-central-1.' },
      { path: 'ecr/roleArn', label: 'Role', help: 'The ARN of a role that is assumed first.', optional: true },
      { path: 'ecr/apiUrl', label: 'Address of ECR', help: 'If it is not https://api.ecr.REGION.amazonaws.com.', optional: true },
      { path: 'ecr/stsUrl', label: 'Address of STS', help: 'If it is not https://sts.REGION.amazonaws.com.', optional: true },
    ],
    is: (c) => c.ecr !== null,
  },
  {
    key: 'gar', label: 'Registry: Google Artifact Registry', kind: 'REGISTRY', value: 'Key of the service account, in JSON', lines: true, urls: 'https://europe-docker.pkg.dev/project/',
    help: 'The key signs requests for tokens of Google Cloud, and is sent nowhere.', always: 'gar',
    fields: [{ path: 'gar/tokenUrl', label: 'Address of tokens', help: 'If it is not https://oauth2.googleapis.com/token.', optional: true }],
    is: (c) => c.gar !== null,
  },
  {
    key: 'acr', label: 'Registry: Azure Container Registry', kind: 'REGISTRY', value: 'Secret of the service principal', urls: 'https://shop.azurecr.io/',
    help: 'The service principal proves itself at Azure, and what it gets is exchanged at the registry.',
    fields: [
      { path: 'acr/tenantId', label: 'Tenant', help: 'Its ID, or its domain.' },
      { path: 'acr/clientId', label: 'Application (client) ID' },
      { path: 'acr/authorityUrl', label: 'Address of the authority', help: 'If it is not https://login.microsoftonline.com.', optional: true },
    ],
    is: (c) => c.acr !== null,
  },
  {
    key: 'git', label: 'Git: user name and password or token', kind: 'GIT', value: 'Password or token', urls: 'https://git.example.com/shop', help: 'Logs in to Git servers and forges.', fields: [{ ...username, optional: true }, forge],
    is: (c) => c.kind === 'GIT' && plain(c),
  },
  {
    key: 'github-app', label: 'Git: GitHub App', kind: 'GIT', value: 'Private key, in PEM', lines: true, urls: 'https://github.com/team', help: 'The key signs requests for tokens of GitHub, each for one repository, and is sent nowhere.',
    fields: [
      { path: 'githubApp/appId', label: 'App ID or client ID' },
      { path: 'githubApp/installationId', label: 'Installation', help: 'The number that the address of the installation ends with.' },
      { path: 'githubApp/apiUrl', label: 'Address of the REST API', help: 'If it is neither https://api.github.com nor https://HOST/api/v3.', optional: true },
      { ...forge, options: { '': 'none', github: 'GitHub' } },
    ],
    is: (c) => c.githubApp !== null,
  },
  {
    key: 'ssh-key', label: 'Git: SSH key', kind: 'GIT', value: 'Private key, in PEM, behind a line “passphrase: …” if it is encrypted', lines: true, urls: 'ssh://git.example.com/shop',
    help: 'Connections of SSH are opened with the key, which is sent nowhere.',
    fields: [
      { path: 'sshKey/knownHosts', label: 'Known hosts', help: 'Lines of known_hosts, or fingerprints (SHA256:…). No other server is trusted.', long: true },
      { path: 'username', label: 'User name', help: 'Without one, git.', optional: true },
    ],
    is: (c) => c.sshKey !== null,
  },
  {
    key: 'http', label: 'HTTP: bearer token', kind: 'HTTP', value: 'Token', urls: 'https://api.example.com/v1', help: 'Is sent with requests of programs and notifications.', fields: [],
    is: (c) => c.kind === 'HTTP' && plain(c) && c.username === '' && c.header === '',
  },
  {
    key: 'http-basic', label: 'HTTP, mail or NATS: user name and password', kind: 'HTTP', value: 'Password', urls: 'https://api.example.com/v1', help: 'Is sent with requests, and to mail servers (smtp://, smtps://) and NATS servers (nats://, tls://).', fields: [username],
    is: (c) => c.kind === 'HTTP' && plain(c) && c.username !== '',
  },
  {
    key: 'http-header', label: 'HTTP: header', kind: 'HTTP', value: 'Value of the header', urls: 'https://hub.example.com/', help: 'Is sent as the value of a header.', fields: [{ path: 'header', label: 'Header', help: 'Such as X-Api-Key.' }],
    is: (c) => c.kind === 'HTTP' && plain(c) && c.header !== '',
  },
  {
    key: 'oauth2', label: 'HTTP: OAuth 2.0 client', kind: 'HTTP', value: 'Secret of the client', urls: 'https://api.example.com/', help: 'The secret goes to the token URL only, and requests are sent with the tokens that it issues.',
    fields: [
      { path: 'oauth2/tokenUrl', label: 'Token URL' },
      { path: 'oauth2/clientId', label: 'Client ID' },
      { path: 'oauth2/scopes', label: 'Scopes', help: 'One per line.', optional: true, list: true, long: true },
      { path: 'oauth2/send', label: 'How the client proves itself', options: { header: 'in a header', body: 'in the body' } },
    ],
    is: (c) => c.oauth2 !== null,
  },
  {
    key: 'certificate', label: 'HTTP: client certificate', kind: 'HTTP', value: 'Certificate and its key, in PEM', lines: true, urls: 'https://inner.example.com/', help: 'Connections are opened with the certificate (mutual TLS).', always: 'certificate',
    fields: [{ path: 'certificate/ca', label: 'Authorities that may vouch for the servers, in PEM', optional: true, long: true }],
    is: (c) => c.certificate !== null,
  },
]

/** The form of a credential; undefined for one that a later version has made. */
export const formOf = (c: CredentialFields): CredentialForm | undefined => forms.find((f) => f.is(c))

/** Lines without spaces at their ends and without empty ones. */
export const linesOf = (text: string): string[] =>
  text
    .split('\n')
    .map((l) => l.trim())
    .filter(Boolean)

/** What the fields of a form are in the input of the API; those that are not filled in are left out. */
export function inputOf(form: CredentialForm, filled: Record<string, string>): Record<string, unknown> {
  const input: Record<string, unknown> = form.always ? { [form.always]: {} } : {}
  for (const field of form.fields) {
    const text = filled[field.path] ?? Object.keys(field.options ?? {})[0] ?? ''
    const value = field.list ? linesOf(text) : field.long ? text : text.trim()
    const [first = '', second] = field.path.split('/')
    if (value.length === 0 && field.optional) continue
    if (second) input[first] = { ...(input[first] as object | undefined), [second]: value }
    else input[first] = value
  }
  return input
}
