import { QueryClientProvider, useQueryClient } from '@tanstack/react-query'
import { lazy, Suspense, useEffect, useRef, useState, useSyncExternalStore } from 'react'
import { createBrowserRouter, NavLink, Route, RouterProvider, Routes, useLocation } from 'react-router'
import { ApiError, rememberOrganization, signInTo, signOut } from './api/client'
import { Inbox, JournalCursor, Viewer, type ViewerData } from './api/generated'
import { always, newQueryClient, useAsk, useLive } from './api/hooks'
import type { Live } from './api/live'
import { absolute, clockTime } from './logic/time'
import { useAnnouncement } from './parts/announce'
import { FreezeBanner } from './parts/freeze'
import { Icon } from './parts/icon'
import { Empty, Loading, NotThere } from './parts/page'
import { Applications } from './pages/applications'
import { ApplicationPage } from './pages/application'
import { EnvironmentPage } from './pages/environment'
import { Environments } from './pages/environments'
import { RolloutDetail } from './pages/rollout'
import { Rollouts } from './pages/rollouts'
import { Sets } from './pages/sets'
import { SignIn } from './pages/sign-in'
import { inboxPage, WaitingForMe } from './pages/waiting'
import { Where } from './pages/where'

const Start = lazy(() => import('./pages/start'))
const NewApplication = lazy(() => import('./pages/new-application'))
const NewEnvironment = lazy(() => import('./pages/new-environment'))
const NewPipeline = lazy(() => import('./pages/new-pipeline'))
const Metrics = lazy(() => import('./pages/metrics'))
const Sources = lazy(() => import('./pages/sources'))
const NewService = lazy(() => import('./pages/new-service'))
const EditSource = lazy(() => import('./pages/edit-source'))
const Credentials = lazy(() => import('./pages/credentials'))
const Forges = lazy(() => import('./pages/forges'))
const Publishing = lazy(() => import('./pages/publishing'))
const Workflows = lazy(() => import('./pages/workflows'))
const WorkflowDetail = lazy(() => import('./pages/workflow'))
const Schedules = lazy(() => import('./pages/schedules'))
const Functions = lazy(() => import('./pages/functions'))
const EditSchedule = lazy(() => import('./pages/edit-schedule'))
const ScheduleDetail = lazy(() => import('./pages/schedule'))
const Answer = lazy(() => import('./pages/answer'))
const ChatAccount = lazy(() => import('./pages/chat-account'))
const MyNotifications = lazy(() => import('./pages/my-notifications'))
const Notifications = lazy(() => import('./pages/notifications'))
const Policies = lazy(() => import('./pages/policies'))
const PolicyPage = lazy(() => import('./pages/policy'))
const VersionDetail = lazy(() => import('./pages/version'))
const Find = lazy(() => import('./pages/find'))
const Agents = lazy(() => import('./pages/agents'))
const Access = lazy(() => import('./pages/access'))
const Changes = lazy(() => import('./pages/changes'))
const Activity = lazy(() => import('./pages/activity'))

/** The address of the documentation, which the server takes out of the page where it is switched off. */
const documentation = document.documentElement.dataset.docs

export function App() {
  const [client] = useState(newQueryClient)
  // A router with data, though nothing loads by it: only such a one can hold a navigation back (parts/unsaved.ts).
  const [router] = useState(() => createBrowserRouter([{ path: '*', element: <Gatekeeper /> }]))
  return (
    <QueryClientProvider client={client}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  )
}

/** Shows the pages to those who are signed in. A session that ends while a page is open asks for the token there. */
function Gatekeeper() {
  const viewer = useAsk(Viewer, {})
  // Asked before any page asks for anything, so that the stream begins before what the pages show.
  const beginning = useAsk(JournalCursor, {}, { once: true })
  const client = useQueryClient()
  const [left, setLeft] = useState(false)
  if (viewer.error instanceof ApiError && viewer.error.kind === 'signed-out') {
    // Data that stays next to the error belongs to the session that ended.
    const note = left ? 'Signed out.' : viewer.data ? 'Your session has ended. Sign in again to continue here.' : ''
    const done = () => {
      setLeft(false)
      void client.resetQueries()
    }
    return <SignIn note={note} done={done} />
  }
  if (!viewer.data) return viewer.error ? <Unreachable retry={() => void viewer.refetch()} /> : <Loading what="console" />
  const { organization } = viewer.data.viewer
  return <Frame key={organization.id} onLeave={() => setLeft(true)} viewer={viewer.data.viewer} cursor={beginning.error ? '' : beginning.data?.journalCursor} />
}

/** Nobody has answered yet, not even once. */
function Unreachable({ retry }: { retry: () => void }) {
  return (
    <main id="main" className="alone">
      <Empty icon="offline" title="Lockstep does not answer">
        <p>Retrying automatically. Check that the domain service is up and that this machine is on the network.</p>
        <p>
          <button type="button" onClick={retry}>
            Try now
          </button>
        </p>
      </Empty>
    </main>
  )
}

function Frame({ viewer, cursor, onLeave }: { viewer: ViewerData['viewer']; cursor: string | undefined; onLeave: () => void }) {
  const { organization, member } = viewer
  const client = useQueryClient()
  const live = useLive(organization.id, cursor)
  const announcement = useAnnouncement()
  useFocusOnNavigation()
  useEffect(() => rememberOrganization(viewer.organizations.length > 1 ? organization.id : ''), [organization.id, viewer.organizations.length])
  const leave = async () => {
    await signOut()
    onLeave()
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
          <Menu owner={viewer.permissions.includes('ADMINISTER')} />
          <div className="foot">
            <span className="faint who">
              Signed in as <bdi>{member ? member.name : viewer.principalType}</bdi>
              {member && member.name !== member.role.toLowerCase() && `, ${member.role.toLowerCase()}`}
            </span>
            <span className="faint">Organization {organization.name}</span>
            {viewer.organizations
              .filter((o) => o.id !== organization.id)
              .map((o) => (
                <a key={o.id} className="button quiet" href={signInTo(o.id)}>
                  Go to <bdi>{o.name}</bdi>
                </a>
              ))}
            {documentation && (
              <a className="button quiet" href={documentation} target="_blank" rel="noreferrer">
                <Icon name="docs" /> Documentation
              </a>
            )}
            <button type="button" className="quiet" onClick={() => void leave()}>
              <Icon name="signout" /> Sign out
            </button>
          </div>
        </header>
        <main id="main">
          <FreezeBanner permissions={viewer.permissions} />
          <Suspense fallback={<Loading what="page" />}>
            <Routes>
              <Route path="/" element={<Where />} />
              <Route path="/start" element={<Start />} />
              <Route path="/waiting" element={<WaitingForMe />} />
              <Route path="/rollouts" element={<Rollouts />} />
              <Route path="/rollouts/:id" element={<RolloutDetail />} />
              <Route path="/applications" element={<Applications />} />
              <Route path="/applications/new" element={<NewApplication />} />
              <Route path="/applications/:name" element={<ApplicationPage />} />
              <Route path="/applications/:name/services/new" element={<NewService />} />
              <Route path="/applications/:name/sets" element={<Sets />} />
              <Route path="/applications/:name/metrics" element={<Metrics />} />
              <Route path="/applications/:name/pipeline" element={<NewPipeline />} />
              <Route path="/environments" element={<Environments />} />
              <Route path="/environments/new" element={<NewEnvironment />} />
              <Route path="/environments/:name" element={<EnvironmentPage />} />
              <Route path="/sources" element={<Sources />} />
              <Route path="/sources/new" element={<EditSource />} />
              <Route path="/sources/:id" element={<EditSource />} />
              <Route path="/credentials" element={<Credentials />} />
              <Route path="/forges" element={<Forges />} />
              <Route path="/forges/publishing" element={<Publishing />} />
              <Route path="/workflows" element={<Workflows />} />
              <Route path="/workflows/:id" element={<WorkflowDetail />} />
              <Route path="/schedules" element={<Schedules />} />
              <Route path="/schedules/:name" element={<ScheduleDetail />} />
              <Route path="/functions" element={<Functions />} />
              <Route path="/new-schedule" element={<EditSchedule />} />
              <Route path="/edit-schedule/:name" element={<EditSchedule />} />
              <Route path="/answer" element={<Answer />} />
              <Route path="/chat-account" element={<ChatAccount />} />
              <Route path="/notifications" element={<Notifications />} />
              <Route path="/my-notifications" element={<MyNotifications />} />
              <Route path="/policies" element={<Policies />} />
              <Route path="/new-policy-set" element={<PolicyPage />} />
              <Route path="/policies/:name" element={<PolicyPage />} />
              <Route path="/versions/:id" element={<VersionDetail />} />
              <Route path="/find" element={<Find />} />
              <Route path="/agents" element={<Agents />} />
              <Route path="/access" element={<Access />} />
              <Route path="/changes" element={<Changes />} />
              <Route path="/activity" element={<Activity />} />
              <Route path="*" element={<NotThere what="page" to="/" list="Live versions" />} />
            </Routes>
          </Suspense>
        </main>
      </div>
      <div className="bottom">
        <div className="toast" role="status" aria-live="polite">
          {announcement && <span>{announcement}</span>}
        </div>
        {live && <Away live={live} />}
      </div>
    </>
  )
}

/** At the bottom, so that nothing moves when it comes and goes. */
function Away({ live }: { live: Live }) {
  const state = useSyncExternalStore(live.onState, live.now)
  if (state.at !== 'away') return null
  return (
    <div className="away" role="status">
      <Icon name="offline" />
      <p>
        <strong>Lockstep does not answer.</strong> What you see is from <time title={absolute(new Date(state.since).toISOString())}>{clockTime(new Date(state.since).toISOString())}</time>. Updates
        resume automatically. If this takes long, check that the domain service is up and that this machine is on the network.
      </p>
      <button type="button" onClick={live.again}>
        Try now
      </button>
    </div>
  )
}

/** Owner: may see what everybody did. */
function Menu({ owner }: { owner: boolean }) {
  const inbox = useAsk(Inbox, { first: inboxPage, after: null }, { follows: always })
  const gates = inbox.data?.gatesForMe.nodes.length ?? 0
  return (
    <nav aria-label="Main">
      <NavLink to="/" end>
        <Icon name="where" /> Live versions
      </NavLink>
      <NavLink to="/waiting">
        <Icon name="inbox" /> Waiting for me
        {gates > 0 && (
          <span className="count">
            {gates}
            {inbox.data?.gatesForMe.pageInfo.hasNextPage && '+'}
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
      <NavLink to="/sources">
        <Icon name="source" /> Sources
      </NavLink>
      <NavLink to="/forges">
        <Icon name="workflow" /> Forges
      </NavLink>
      <NavLink to="/workflows">
        <Icon name="workflow" /> Workflows
      </NavLink>
      <NavLink to="/schedules">
        <Icon name="clock" /> Schedules
      </NavLink>
      <NavLink to="/agents">
        <Icon name="agent" /> Agents
      </NavLink>
      <NavLink to="/notifications">
        <Icon name="inbox" /> Notifications
      </NavLink>
      <NavLink to="/my-notifications">
        <Icon name="inbox" /> My notifications
      </NavLink>
      <NavLink to="/policies">
        <Icon name="gate" /> Policies
      </NavLink>
      <NavLink to="/credentials">
        <Icon name="gate" /> Credentials
      </NavLink>
      <NavLink to="/access">
        <Icon name="people" /> Access
      </NavLink>
      <NavLink to="/changes">
        <Icon name="same" /> Proposed changes
      </NavLink>
      {owner && (
        <NavLink to="/activity">
          <Icon name="journal" /> Activity
        </NavLink>
      )}
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
