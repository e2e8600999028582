package kind

import (
	"cmp"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// ServiceAccountUser returns the user name of the ServiceAccount with which Argo CD on a spoke deploys an Application, as its
// AppProject says (destinationServiceAccounts). It returns "" if the project names none. As in Argo CD, the first entry
// that matches decides.
func ServiceAccountUser(app, project *Object) string {
	entries, err := rawjson.Elements(project.Get("spec", "destinationServiceAccounts"))
	if err != nil {
		return ""
	}
	to := rawjson.Text(app.Get("spec", "destination"), "namespace")
	for _, e := range entries {
		if !globMatch(rawjson.Text(e, "server"), inClusterServer) || !globMatch(rawjson.Text(e, "namespace"), to) {
			continue
		}
		namespace, name, qualified := strings.Cut(rawjson.Text(e, "defaultServiceAccount"), ":")
		if !qualified {
			namespace, name = cmp.Or(to, app.Namespace()), namespace
		}
		if namespace == "" || name == "" || strings.Contains(name, ":") {
			return ""
		}
		return "system:serviceaccount:" + namespace + ":" + name
	}
	return ""
}
