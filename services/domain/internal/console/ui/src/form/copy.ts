// What the forms say. Drivers carry no copy (D6): labels, help and the words for options live here, keyed by driver, field and
// token. A driver that is not here gets its fields' names, made readable.

interface Words {
  label: string
  help?: string
  options?: Record<string, string>
}

const catalogue: Record<string, Words> = {
  'argo-rollouts/cluster_agent_id': {
    label: 'Cluster agent',
    help: 'The relay that reaches this environment’s cluster, by its number: see Agents.',
  },
  'argo-rollouts/namespace': { label: 'Argo CD namespace', help: 'Where the Argo CD Applications live.' },
  'argo-rollouts/application': { label: 'Argo CD Application', help: 'The one that is synced for this application in this environment.' },
  'argo-rollouts/mode': {
    label: 'Who makes the Argo CD Application',
    options: { managed: 'Lockstep makes it if it is missing', existing: 'It has to exist already' },
  },
  'argo-rollouts/project': { label: 'Argo CD project', help: 'Of an Application that Lockstep makes.' },
  'argo-rollouts/rollout_strategy': {
    label: 'Rollout strategy',
    options: { canary: 'Canary: traffic moves step by step', blue_green: 'Blue-green: traffic moves all at once' },
  },
  'argo-rollouts/use_load_balancing': { label: 'Shift traffic by a load balancer', help: 'Otherwise by the number of replicas.' },
  'argo-rollouts/load_balancer_type': { label: 'Load balancer', options: { istio: 'Istio', nginx: 'NGINX', alb: 'AWS ALB' } },
  'argo-rollouts/repository_url': { label: 'Git repository', help: 'Its https address, without credentials: those are found when they are needed.' },
  'argo-rollouts/branch': { label: 'Branch' },
  'argo-rollouts/path': { label: 'Folder in Git', help: 'The one that Argo CD syncs.' },
  'argo-rollouts/destination_namespace': { label: 'Namespace of the workloads' },
  'argo-rollouts/services': { label: 'Where each service lives', help: 'The manifest of its Rollout, and the container that runs its image.' },
  'argo-rollouts/services.service': { label: 'Service' },
  'argo-rollouts/services.file': { label: 'Manifest file' },
  'argo-rollouts/services.format': {
    label: 'What the file is',
    options: { manifest: 'A manifest with the pods', kustomize: 'A kustomization with images', helm: 'The values of a Helm chart' },
  },
  'argo-rollouts/services.container': { label: 'Container' },
  'argo-rollouts/services.image': { label: 'Image', help: 'Only where a service has several.' },
  'argo-rollouts/services.rollout_file': { label: 'File of the Rollout', help: 'Where that is another one.' },
  'argo-rollouts/services.rollout_name': { label: 'Name of the Rollout', help: 'Where the file has several, or a chart makes it.' },
  'argo-rollouts/services.image_name': { label: 'Name of the image in the kustomization' },
  'argo-rollouts/services.image_path': { label: 'Image in the values', help: 'Such as image, with repository and tag below it.' },
  'argo-rollouts/services.steps_path': { label: 'Canary steps in the values' },
  'argo-rollouts/services.traffic': { label: 'Traffic', help: 'What the manifest does not say.' },
  'argo-rollouts/services.traffic.active_service': { label: 'Active Service', help: 'Blue-green: the one that everybody uses.' },
  'argo-rollouts/services.traffic.preview_service': { label: 'Preview Service', help: 'Blue-green: that of the new version before its promotion.' },
  'argo-rollouts/services.traffic.stable_service': { label: 'Stable Service' },
  'argo-rollouts/services.traffic.canary_service': { label: 'Canary Service' },
  'argo-rollouts/services.traffic.virtual_service': { label: 'Istio virtual service' },
  'argo-rollouts/services.traffic.routes': { label: 'Routes to split', help: 'None for the only one that the virtual service has.' },
  'argo-rollouts/services.traffic.ingress': { label: 'Ingress' },
  'argo-rollouts/services.traffic.service_port': { label: 'Port of the Service' },
  'argo-rollouts/version_setting': {
    label: 'Where versions are written',
    options: { committed: 'Into the repository', parameters: 'Into the Argo CD Application' },
  },
  'git/repository': { label: 'Git repository', help: 'Its https address, without credentials: those are configured at the registry service.' },
  'git/follow': { label: 'What counts', options: { branch: 'Commits of a branch', tags: 'Tags that are versions' } },
  'git/branch': { label: 'Branch' },
  'git/range': { label: 'Range of versions', help: 'Such as >=1.2.0 <2.0.0; without it every release.' },
  'git/paths': { label: 'Only these files', help: 'Patterns, with spaces between them: deploy/** services/api/*.go. Without them every file.' },
  'git/ignore_paths': { label: 'Not these files', help: 'Patterns of files whose changes do not count.' },
  'git/poll_interval_seconds': { label: 'Seconds between two checks' },
  'oci-image/image': { label: 'Image', help: 'Without tag and digest: registry.example.com/shop/api' },
  'oci-image/selection': {
    label: 'Which tags count',
    options: {
      any: 'Any tag that is reported',
      semver: 'The highest version in a range',
      newest_build: 'The one that was built last',
      lexical: 'The last in order of characters',
      mutable_tag: 'Whatever one tag names',
    },
  },
  'oci-image/range': { label: 'Range of versions', help: 'Such as >=1.2.0 <2.0.0; a pre-release counts only where the range names one.' },
  'oci-image/tag': { label: 'Tag' },
  'oci-image/allow_tags': { label: 'Only tags like', help: 'A regular expression that has to match somewhere.' },
  'oci-image/ignore_tags': { label: 'No tags like', help: 'A regular expression that may match nowhere.' },
  'oci-image/poll': { label: 'Poll the registry', help: 'For registries that send no notifications of new images.' },
  'oci-image/poll_interval_seconds': { label: 'Seconds between two checks' },
  'oci-image/platform': { label: 'Platform', help: 'What an image has to be built for: linux/arm64' },
  'argo-rollouts/poll_interval': { label: 'Seconds between two looks at the cluster' },
  'argo-rollouts/deadline': { label: 'Seconds that each wait for the cluster may take' },
  'argo-rollouts/approval_deadline': { label: 'Seconds that people may take to decide' },
  'kubernetes/cluster_agent_id': { label: 'Cluster agent', help: 'The relay that reaches this environment’s cluster, by its number: see Agents.' },
  'kubernetes/namespaces': { label: 'Namespaces that applications may use', help: 'Patterns; none for all that the relay allows.' },
  'kubernetes/repositories': { label: 'Repositories that applications may use', help: 'Patterns; none for all.' },
  'kubernetes/repository_url': { label: 'Repository of the manifests', help: 'Without credentials: https://git.example.com/shop/deploy.git' },
  'kubernetes/branch': { label: 'Branch' },
  'kubernetes/files': { label: 'Files with manifests' },
  'kubernetes/kustomize': { label: 'Kustomize', help: 'In place of files.' },
  'kubernetes/kustomize.path': { label: 'Folder of the overlay' },
  'kubernetes/kustomize.root': { label: 'Folder with the overlay and its bases', help: 'Only in a repository of more than 2,000 files.' },
  'kubernetes/helm': { label: 'Helm', help: 'In place of files: a chart of a registry, or of the repository.' },
  'kubernetes/helm.chart': { label: 'Chart in a registry', help: 'Such as oci://registry.example.com/charts/shop' },
  'kubernetes/helm.path': { label: 'Folder of a chart in the repository' },
  'kubernetes/helm.values': { label: 'Values', help: 'As YAML, without secrets: they become part of the record.' },
  'kubernetes/namespace': { label: 'Namespace of all objects' },
  'kubernetes/create_namespace': { label: 'Create the namespace if it does not exist' },
  'kubernetes/prune': { label: 'Delete objects that the manifests do not have any more' },
  'kubernetes/services': { label: 'Images', help: 'Which container runs which service.' },
  'kubernetes/poll_interval': { label: 'Seconds between two looks at the cluster' },
  'kubernetes/deadline': { label: 'Seconds that objects may take to become ready' },
  'kubernetes/approval_deadline': { label: 'Seconds that people may take to decide' },
  'git/repositories': { label: 'Repositories that applications may use', help: 'Patterns; none for all.' },
  'git/services': { label: 'Images', help: 'Which field of which file has the image of a service.' },
  'git/services.field': { label: 'Field', help: 'Such as api.image.' },
  'git/proposal': { label: 'How the branch is changed', options: { none: 'By a commit', pull_request: 'By a pull request, merged once the rollout may enter' } },
  'git/merge_method': { label: 'How a pull request is merged', options: { merge: 'As the project is configured', squash: 'As one commit', fast_forward: 'By moving the branch' } },
  'git/statuses': { label: 'Commit statuses that have to be successful', help: 'None: healthy with the commit.' },
  'git/deadline': { label: 'Seconds that the merge and the statuses may take' },
  'git/approval_deadline': { label: 'Seconds that people may take to decide' },
  'git/services.image_name': { label: 'Name of the image in a kustomization', help: 'In place of a field, where the file is a kustomization.yaml.' },
  'flux/cluster_agent_id': { label: 'Cluster agent', help: 'The relay that reaches this environment’s cluster, by its number: see Agents.' },
  'flux/namespaces': { label: 'Namespaces whose objects of Flux applications may use', help: 'Patterns; none for all that the relay allows.' },
  'flux/repositories': { label: 'Repositories that applications may use', help: 'Patterns; none for all.' },
  'flux/repository_url': { label: 'Repository that Flux watches', help: 'Without credentials: https://git.example.com/shop/deploy.git' },
  'flux/branch': { label: 'Branch that Flux follows' },
  'flux/services': { label: 'Images', help: 'Which field of which file has the image of a service.' },
  'flux/services.field': { label: 'Field', help: 'Such as api.image.' },
  'flux/services.image_name': { label: 'Name of the image in a kustomization', help: 'In place of a field, where the file is a kustomization.yaml.' },
  'flux/kind': { label: 'What deploys', options: { Kustomization: 'A Kustomization', HelmRelease: 'A HelmRelease, with its chart in the repository' } },
  'flux/namespace': { label: 'Its namespace' },
  'flux/name': { label: 'Its name' },
  'flux/source_namespace': { label: 'Namespace of the GitRepository' },
  'flux/source_name': { label: 'Name of the GitRepository' },
  'flux/source_url': { label: 'URL of the GitRepository', help: 'Only if its host or path is another one than above.' },
  'flux/request': { label: 'Ask Flux to reconcile at once', help: 'Otherwise a rollout waits for the intervals of Flux.' },
  'flux/only_own_commit': { label: 'Fail if Flux deploys another commit' },
  'flux/applied_is_healthy': { label: 'Accept an object that does not wait for health' },
  'flux/proposal': { label: 'How the branch is changed', options: { none: 'By a commit', pull_request: 'By a pull request, merged once the rollout may enter' } },
  'flux/merge_method': { label: 'How a pull request is merged', options: { merge: 'As the project is configured', squash: 'As one commit', fast_forward: 'By moving the branch' } },
  'flux/poll_interval': { label: 'Seconds between two looks at Flux' },
  'flux/deadline': { label: 'Seconds that the merge and Flux may take' },
  'flux/approval_deadline': { label: 'Seconds that people may take to decide' },
  'argo-workflows/access': { label: 'How workflows are submitted', options: { relay: 'Through the relay in the cluster', server: 'Through the Argo Server’s REST API' } },
  'argo-workflows/cluster_agent_id': { label: 'Cluster agent', help: 'The relay that reaches this environment’s cluster, by its number: see Agents.' },
  'argo-workflows/server_url': { label: 'URL of the Argo Server', help: 'With a relay it is only used for links.' },
  'argo-workflows/credential': { label: 'Credential', help: 'The name of a credential that an operator has configured: a token for that URL.' },
  'argo-workflows/namespaces': { label: 'Namespaces that applications may use', help: 'Patterns; none for all that the relay or the credential allows.' },
  'argo-workflows/namespace': { label: 'Namespace of the workflows' },
  'argo-workflows/template': { label: 'Template of the Workflow', help: 'YAML. Lockstep’s expressions are between {[ and ]}, Argo’s between {{ and }}.' },
  'argo-workflows/delimiters': { label: 'Delimiters', options: { auto: 'As the template shows', square: '{[ ]}', curly: '{{ }}' } },
  'argo-workflows/missing_keys': { label: 'Keys that do not exist', options: { empty: 'Are empty', error: 'Are an error' } },
  'argo-workflows/variables': { label: 'Variables', help: 'For the template. They are not secret.' },
  'argo-workflows/abort_with': { label: 'When a rollout is aborted', options: { stop: 'Stop: exit handlers still run', terminate: 'Terminate: at once' } },
  'argo-workflows/deadline': { label: 'Seconds that a workflow may take' },
  'argo-workflows/approval_deadline': { label: 'Seconds that people may take to decide' },
  'checks/active': { label: 'About what is in the environment', help: 'Green before a rollout enters the next one.' },
  'checks/proposed': { label: 'About what would enter', help: 'Green before a rollout enters this one.' },
  'checks/active.key': { label: 'Key', help: 'What reports call it. A timer and the health have one by default.' },
  'checks/proposed.key': { label: 'Key', help: 'What reports call it.' },
  'checks/active.kind': { label: 'Kind', options: { status: 'Reported by people and systems', timer: 'A time without a new rollout', health: 'The health of what was deployed' } },
  'checks/proposed.kind': { label: 'Kind', options: { status: 'Reported by people and systems', schedule: 'Windows of time' } },
  'checks/active.duration': { label: 'Seconds that it has to be there' },
}

/** "cluster_agent_id" → "Cluster agent id" */
export function humanise(token: string): string {
  const words = token.replace(/([a-z0-9])([A-Z])/g, '$1 $2').replace(/[_\-.]+/g, ' ').trim().toLowerCase()
  return words.charAt(0).toUpperCase() + words.slice(1)
}

/** The words for a field: driver is a reference (argo-rollouts@1), path leaves indices out. */
export function wordsFor(driver: string, path: string[]): Words {
  const name = driver.split('@')[0] ?? ''
  const known = catalogue[`${name}/${path.filter((p) => !/^\d+$/.test(p)).join('.')}`]
  return known ?? { label: humanise(path.findLast((p) => !/^\d+$/.test(p)) ?? '') }
}

export function optionWords(words: Words, token: unknown): string {
  return words.options?.[String(token)] ?? (typeof token === 'string' ? humanise(token) : JSON.stringify(token))
}
