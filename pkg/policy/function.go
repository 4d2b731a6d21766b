package policy

// Functions are the names of those that the engine has, which policies about calls may name. Workers have further ones, under names of
// their own.
func Functions() []string {
	return []string{
		"argo.abort", "argo.analyze", "argo.check", "argo.end_analysis", "argo.promote", "argo.retry", "argo.sync",
		"argo.terminate", "checkpoint", "expression.evaluate", "git.comment", "git.commit", "git.compare", "git.merge", "git.propose",
		"git.read_change", "git.read_commit", "git.read_file", "git.read_proposal", "git.read_status",
		"git.set_deployment", "git.set_status", "git.withdraw", "http.request", "job.logs", "job.run", "job.stop",
		"k8s.apply", "k8s.delete", "k8s.get", "k8s.health", "k8s.list", "k8s.logs", "k8s.observe", "k8s.patch",
		"k8s.unwatch", "k8s.watch", "mail.send", "manifest.compare", "manifest.compare_rendered",
		"manifest.diff", "manifest.edit", "manifest.helm", "manifest.kustomize",
		"manifest.pin", "manifest.pin_kustomization", "manifest.pin_values", "manifest.redact", "nats.publish", "template.render",
		"workflow.logs", "workflow.stop",
		"workflow.submit",
		"workflow.terminate",
	}
}
