// An environment or a service as people call it; where that is a display name, the name is its tooltip.
import { Link } from 'react-router'
import { other, displayed, type Named as NamedThing } from '../logic/names'

export function Named({ of }: { of: NamedThing }) {
  const name = other(of)
  return name === undefined ? <>{displayed(of)}</> : <span title={name}>{displayed(of)}</span>
}

/** The link to the page of an environment. */
export function EnvironmentLink({ of }: { of: NamedThing }) {
  return (
    <Link to={`/environments/${of.name}`} title={other(of)}>
      {displayed(of)}
    </Link>
  )
}
