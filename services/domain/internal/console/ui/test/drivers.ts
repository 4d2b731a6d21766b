// Made-up drivers: what their forms look like must follow from their schemas alone.
import type { Schema } from '../src/form/schema'

/** Runs containers somewhere: plain types, enums without widgets, numbers with bounds, a widget that nobody knows. */
export const boats: Schema = {
  type: 'object',
  required: ['harbour', 'size', 'knots'],
  additionalProperties: false,
  properties: {
    harbour: { type: 'string', minLength: 1, description: 'NEVER SHOWN', gitlabUi: { widget: 'harbour_map' } },
    size: { type: 'string', enum: ['small', 'very_large'], gitlabUi: { widget: 'select' } },
    knots: { type: 'integer', minimum: 1, maximum: 40, default: 12, gitlabUi: { widget: 'number' } },
    night: { type: 'boolean', gitlabUi: { widget: 'checkbox' } },
    pilot: { type: 'integer', minimum: 1, gitlabUi: { widget: 'agent_picker' } },
  },
} as Schema

/** Pickers, a text in a language, and a reference to a secret. */
export const ports: Schema = {
  type: 'object',
  required: ['pilot', 'key'],
  additionalProperties: false,
  properties: {
    pilot: { type: 'integer', minimum: 1, gitlabUi: { widget: 'agent_picker' } },
    login: { type: 'string', minLength: 1, credentialKind: ['registry', 'http'], gitlabUi: { widget: 'credential_picker' } },
    any_login: { type: 'string', gitlabUi: { widget: 'credential_picker' } },
    chart: { type: 'string', maxLength: 100, contentMediaType: 'application/yaml', gitlabUi: { widget: 'code' } },
    key: { type: 'string', maxLength: 200, gitlabUi: { widget: 'secret_reference' } },
    keys: { type: 'array', items: { type: 'string', gitlabUi: { widget: 'secret_reference' } } },
  },
} as Schema

/** Conditions: a chain of them, and allOf with several. */
export const functions: Schema = {
  type: 'object',
  required: ['runtime', 'public'],
  properties: {
    runtime: { enum: ['managed', 'container'], default: 'managed' },
    public: { type: 'boolean' },
    image: { type: 'string' },
    registry: { type: 'string', enum: ['own', 'shared'] },
    secret_name: { type: 'string' },
    domain: { type: 'string', pattern: '^[a-z.]+$' },
  },
  allOf: [
    {
      if: { properties: { runtime: { const: 'container' } }, required: ['runtime'] },
      then: { required: ['image', 'registry'] },
      else: { properties: { image: false, registry: false } },
    },
    {
      if: { properties: { registry: { const: 'own' } }, required: ['registry'] },
      then: { required: ['secret_name'] },
      else: { properties: { secret_name: false } },
    },
    { if: { properties: { public: { const: true } }, required: ['public'] }, then: { required: ['domain'] }, else: { properties: { domain: false } } },
  ],
}

/** Depth: references, lists of objects, an object in an object, and a type that has no control of its own. */
export const machines: Schema = {
  type: 'object',
  required: ['hosts', 'login'],
  properties: {
    hosts: { type: 'array', minItems: 1, items: { $ref: '#/$defs/host' } },
    login: { type: 'object', required: ['user'], properties: { user: { $ref: '#/$defs/name' }, port: { type: 'number', default: 22 } } },
    labels: { type: 'object', additionalProperties: { type: 'string' } },
    cycle: { $ref: '#/$defs/cycle' },
  },
  $defs: {
    name: { type: 'string', pattern: '^[a-z]+$', maxLength: 8 },
    host: { type: 'object', required: ['name'], properties: { name: { $ref: '#/$defs/name' }, spare: { type: 'boolean' } } },
    cycle: { $ref: '#/$defs/cycle' },
  },
}
