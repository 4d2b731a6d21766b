import { QueryClientProvider, useQueryClient } from '@tanstack/react-query'
import { lazy, Suspense, useEffect, useRef, useState } from 'react'
import { BrowserRouter, NavLink, Route, Routes, useLocation } from 'react-router'
import { ApiError, signOut } from './api/client'
import { Rollouts as RolloutsOperation, Viewer } from './api/generated'
import { newQueryClient, useAsk } from './api/hooks'
import { useAnnouncement } from './parts/announce'
import { Icon } from './parts/icon'
import { Loading, NotThere } from './parts/page'
import { Applications } from './pages/applications'
import { ApplicationPage } from './pages/application'
import { EnvironmentPage } from './pages/environment'
import { Environments } from './pages/environments'
import { RolloutDetail } from './pages/rollout'
import { Rollouts } from './pages/rollouts'
import { Sets } from './pages/sets'
import { SignIn } from './pages/sign-in'
import { WaitingForMe } from './pages/waiting'
import { Where } from './pages/where'

const NewApplication = lazy(() => import('./pages/new-application'))
const NewEnvironment = lazy(() => import('./pages/new-environment'))
const NewPipeline = lazy(() => import('./pages/new-pipeline'))

export function App() {
  const [client] = useState(newQueryClient)
  return (
    <QueryClientProvider client={client}>
      <BrowserRouter>
        <Gatekeeper />
      </BrowserRouter>
    </QueryClientProvider>
  )
}

/** Shows the pages to those who are signed in. A session that ends while a page is open asks for the token there. */
function Gatekeeper() {
  const viewer = useAsk(Viewer, {})
  const client = useQueryClient()
  if (viewer.error instanceof ApiError && viewer.error.kind === 'signed-out') return <SignIn done={() => client.resetQueries()} />
  if (!viewer.data && !viewer.error) return <Loading what="console" />
  return <Frame organization={viewer.data?.viewer.organization.name ?? ''} offline={viewer.error instanceof ApiError} />
}

function Frame({ organization, offline }: { organization: string; offline: boolean }) {
  const client = useQueryClient()
  const announcement = useAnnouncement()
  useFocusOnNavigation()
  const leave = async () => {
    await signOut()
    await client.resetQueries()
  }
  return (
    <>
      <a className="skip" href="#main">
        Skip to the page
      </a>
      <div className="frame">
        <header className="side">
          <div className="brand">
            <img src="/favicon.svg" alt="" width="28" height="28" />
            <span>Lockstep</span>
          </div>
          <Menu />
          <div className="foot">
            {organization && <span className="faint">Organization {organization}</span>}
            <button type="button" className="quiet" onClick={() => void leave()}>
              <Icon name="signout" /> Sign out
            </button>
          </div>
        </header>
        <main id="main">
          {offline && (
            <p className="banner bad" role="status">
              <Icon name="offline" /> Lockstep does not answer. What you see is what was last known; it goes on by itself.
            </p>
          )}
          <Suspense fallback={<Loading what="page" />}>
            <Routes>
              <Route path="/" element={<Where />} />
              <Route path="/waiting" element={<WaitingForMe />} />
              <Route path="/rollouts" element={<Rollouts />} />
              <Route path="/rollouts/:id" element={<RolloutDetail />} />
              <Route path="/applications" element={<Applications />} />
              <Route path="/applications/new" element={<NewApplication />} />
              <Route path="/applications/:name" element={<ApplicationPage />} />
              <Route path="/applications/:name/sets" element={<Sets />} />
              <Route path="/applications/:name/pipeline" element={<NewPipeline />} />
              <Route path="/environments" element={<Environments />} />
              <Route path="/environments/new" element={<NewEnvironment />} />
              <Route path="/environments/:name" element={<EnvironmentPage />} />
              <Route path="*" element={<NotThere what="page" to="/" list="What is where" />} />
            </Routes>
          </Suspense>
        </main>
      </div>
      <div className="toast" role="status" aria-live="polite">
        {announcement && <span>{announcement}</span>}
      </div>
    </>
  )
}

function Menu() {
  const open = useAsk(RolloutsOperation, { first: 100, states: ['PENDING', 'IN_PROGRESS', 'PAUSED'] }, { live: () => true })
  const gates = open.data?.rollouts.nodes.reduce((sum, r) => sum + r.openGates.length, 0) ?? 0
  return (
    <nav aria-label="Main">
      <NavLink to="/" end>
        <Icon name="where" /> What is where
      </NavLink>
      <NavLink to="/waiting">
        <Icon name="inbox" /> Waiting for me
        {gates > 0 && (
          <span className="count">
            {gates}
            <span className="visually-hidden"> open</span>
          </span>
        )}
      </NavLink>
      <NavLink to="/rollouts">
        <Icon name="rollout" /> Rollouts
      </NavLink>
      <NavLink to="/applications">
        <Icon name="app" /> Applications
      </NavLink>
      <NavLink to="/environments">
        <Icon name="environment" /> Environments
      </NavLink>
    </nav>
  )
}

/** After going to another page the focus is on its heading, so that a screen reader says where one is. Not for the first page. */
function useFocusOnNavigation() {
  const { pathname } = useLocation()
  const first = useRef(true)
  useEffect(() => {
    if (first.current) {
      first.current = false
      return
    }
    window.scrollTo(0, 0)
    const frame = requestAnimationFrame(() => document.querySelector<HTMLElement>('main h1')?.focus({ preventScroll: true }))
    return () => cancelAnimationFrame(frame)
  }, [pathname])
}
