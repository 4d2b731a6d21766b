package invariant

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// drain is how many seconds a service's parts have to stop after preStop.
const drain = 15

// secretName matches variables that hold a credential.
var secretName = regexp.MustCompile(`(PASSWORD|TOKEN|SECRET|SEED|DATABASE_URL)`)

// checkPod checks a pod against the restricted Pod Security Standard and our additional rules.
func (r *release) checkPod(p pod) {
	s := p.spec
	if s.HostNetwork || s.HostPID || s.HostIPC {
		r.wrong("%s: shares a namespace of the node, expected none", p.of)
	}
	for _, v := range s.Volumes {
		if v.HostPath != nil {
			r.wrong("%s: volume %s is a path of the node", p.of, v.Name)
		}
	}
	security := s.SecurityContext
	if security == nil || security.RunAsNonRoot == nil || !*security.RunAsNonRoot || security.RunAsUser == nil || *security.RunAsUser == 0 {
		r.wrong("%s: may run as root", p.of)
	}
	if security == nil || security.SeccompProfile == nil || security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		r.wrong("%s: has no seccomp profile RuntimeDefault", p.of)
	}
	// The relay's roles may be created outside the chart.
	needed := p.isWorkload && (p.labels["app.kubernetes.io/component"] == "relay" || r.isBound(s.ServiceAccountName))
	if s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken != needed {
		r.wrong("%s: automountServiceAccountToken: expected %t, written out", p.of, needed)
	}
	if s.EnableServiceLinks == nil || *s.EnableServiceLinks {
		r.wrong("%s: enableServiceLinks: expected false; variables of other Services could be taken for configuration", p.of)
	}
	if len(s.Containers) == 0 {
		r.wrong("%s: has no container", p.of)
	}
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		r.checkContainer(p, c)
	}
	if p.isWorkload {
		for _, c := range s.Containers {
			r.checkLife(p, c)
		}
	}
}

func (r *release) checkContainer(p pod, c corev1.Container) {
	of := p.of + ": container " + c.Name
	security := c.SecurityContext
	if security == nil || security.AllowPrivilegeEscalation == nil || *security.AllowPrivilegeEscalation ||
		security.Capabilities == nil || !slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
		len(security.Capabilities.Add) > 0 {
		r.wrong("%s: is not restricted: expected no privilege escalation and no capability", of)
	}
	if security == nil || security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem {
		r.wrong("%s: its root file system can be written to", of)
	}
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
		r.wrong("%s: expected requests of cpu and memory, and a limit of memory", of)
	}
	_, tag, _ := strings.Cut(c.Image[strings.LastIndex(c.Image, "/")+1:], ":")
	if tag == "" || tag == "latest" {
		r.wrong("%s: image %q is not pinned, expected a tag or a digest", of, c.Image)
	}
	for _, e := range c.Env {
		if secretName.MatchString(e.Name) && e.Value != "" && !strings.Contains(e.Value, "$(") {
			r.wrong("%s: %s is written out, expected a reference to a Secret", of, e.Name)
		}
	}
}

// checkLife checks the probes and the termination of a long-running container.
func (r *release) checkLife(p pod, c corev1.Container) {
	of := p.of + ": container " + c.Name
	probes := map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe}
	for name, probe := range probes {
		if probe == nil {
			r.wrong("%s: has no %s probe", of, name)
			continue
		}
		if probe.HTTPGet != nil && !slices.ContainsFunc(c.Ports,
			func(port corev1.ContainerPort) bool { return port.Name == probe.HTTPGet.Port.StrVal }) {
			r.wrong("%s: its %s probe asks port %s, which it does not have", of, name, probe.HTTPGet.Port.String())
		}
	}
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Sleep == nil {
		return
	}
	if grace := p.spec.TerminationGracePeriodSeconds; grace == nil || *grace < c.Lifecycle.PreStop.Sleep.Seconds+drain {
		r.wrong("%s: is killed before preStop and the %d s after it are over", of, drain)
	}
}

// passwordInURL matches scheme://user:password@host, unless the password is a variable or a placeholder.
var passwordInURL = regexp.MustCompile(`://[^/\s:@"]+:[^$@/\s"][^@/\s"]*@`)

// checkText checks objects as text.
func (r *release) checkText() {
	for _, o := range r.objects {
		if found := passwordInURL.FindString(o.Text); found != "" {
			r.wrong("%s %s: has a password in it: %s", o.Kind, o.Name, found)
		}
		for _, label := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component", "helm.sh/chart"} {
			if o.Source != "templates/extra.yaml" && !strings.Contains(o.Text, label+":") {
				r.wrong("%s %s: has no label %s", o.Kind, o.Name, label)
			}
		}
	}
}
