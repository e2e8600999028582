package kind

import (
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file is about source hydrators: Applications whose rendered manifests Argo CD pushes to Git. It runs on the workload
// cluster, which needs credentials to push.

// Types of Secrets with credentials to push.
const (
	writeRepository  = "repository-write"
	writeCredentials = "repo-write-creds" // for all repositories below a URL
)

func isWriteType(t string) bool { return t == writeRepository || t == writeCredentials }

// CanPush reports whether a Secret has credentials to push to a repository.
func CanPush(o *Object) bool { return isWriteType(o.Label(secretType)) }

// PushesTo returns the repository to which a source hydrator pushes. It is empty if the Application has none.
func PushesTo(app *Object) string {
	if !hasHydrator(app) {
		return ""
	}
	for _, source := range []string{"syncSource", "drySource"} {
		if address := rawjson.Text(app.Get("spec", "sourceHydrator", source, "repoURL")); address != "" {
			return address
		}
	}
	return ""
}

// PushedBranch returns a repository and the branch to which a source hydrator pushes there, as one key. It is empty if the
// Application has no source hydrator.
func PushedBranch(app *Object) string {
	to := PushesTo(app)
	if to == "" {
		return ""
	}
	branch := rawjson.Text(app.Get("spec", "sourceHydrator", "hydrateTo", "targetBranch"))
	if branch == "" {
		branch = rawjson.Text(app.Get("spec", "sourceHydrator", "syncSource", "targetBranch"))
	}
	return NormalizeRepoURL(to) + " " + branch
}

// PushesWith reports whether an Application pushes with the credentials of a Secret: both have the same AppProject, and the
// URL matches. A Secret without a project is for none.
func PushesWith(app, secret *Object) bool {
	to, address := NormalizeRepoURL(PushesTo(app)), NormalizeRepoURL(secretText(secret, "url"))
	if to == "" || address == "" || RepositoryProject(secret) != ProjectOf(app) || !CanPush(secret) {
		return false
	}
	if secret.Label(secretType) == writeCredentials {
		return strings.HasPrefix(to, address)
	}
	return to == address
}

// pushNeeded reports whether the hub sends credentials to push to an agent: the setting permits it, and an Application that
// is placed there pushes with them.
func pushNeeded(secret *Object, w *Env) bool {
	if !w.Settings.SyncWriteCredentials || w.Pushing == nil {
		return false
	}
	for _, app := range w.Pushing(RepositoryProject(secret)) {
		if _, placement, _ := Place(app, w); placement == Placed && PushesWith(app, secret) {
			return true
		}
	}
	return false
}
