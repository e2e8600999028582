package resource

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// Argo CD can act as a ServiceAccount that an AppProject names, with header Impersonate-User. Such a request must never be
// executed with the agent's own permissions. An agent of an older release removes the header and would do that. So the Hub
// sends the account as a prefix of the path, for which an older agent has no resource, and which API servers do not serve.
const impersonatePrefix = "/impersonate.argocd-agent/"

const (
	impersonateUser   = "Impersonate-User"
	impersonateHeader = "Impersonate-" // prefix of all of them
)

// SettingImpersonation is the setting that decides which ServiceAccounts can be impersonated.
const SettingImpersonation = "destinationServiceAccounts"

// accountUser matches the user name of a ServiceAccount.
var accountUser = regexp.MustCompile(`^system:serviceaccount:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?:[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// impersonated returns the ServiceAccount that a request impersonates, or "". It refuses everything else that a client can
// impersonate.
func impersonated(header http.Header) (string, *Status) {
	user := ""
	for name, values := range header {
		if len(name) < len(impersonateHeader) || !strings.EqualFold(name[:len(impersonateHeader)], impersonateHeader) {
			continue
		}
		switch {
		case !strings.EqualFold(name, impersonateUser):
			return "", cannotImpersonate(fmt.Sprintf("header %s is not supported: only a ServiceAccount can be impersonated, with %s", http.CanonicalHeaderKey(name), impersonateUser))
		case len(values) != 1 || user != "":
			return "", cannotImpersonate("there is more than one user to impersonate")
		case !accountUser.MatchString(values[0]):
			return "", cannotImpersonate(fmt.Sprintf("%q is not a ServiceAccount (system:serviceaccount:NAMESPACE:NAME)", values[0]))
		}
		user = values[0]
	}
	return user, nil
}

func cannotImpersonate(why string) *Status {
	s := newStatus(http.StatusForbidden, "Forbidden", "impersonation is refused: "+why)
	s.setting = SettingImpersonation
	return s
}

// cutImpersonation splits the path of a request between Hub and Agent into the impersonated account and the rest.
func cutImpersonation(path string) (user, rest string, status *Status) {
	after, ok := strings.CutPrefix(path, impersonatePrefix)
	if !ok {
		return "", path, nil
	}
	user, rest, _ = strings.Cut(after, "/")
	if !accountUser.MatchString(user) {
		return "", "", badRequest("the path names no ServiceAccount to impersonate")
	}
	return user, "/" + rest, nil
}

// mayImpersonate decides whether a request for an object of an Application may impersonate an account. If app is empty, the
// request is permitted for another reason.
func (a *Agent) mayImpersonate(ctx context.Context, app, user string) *Status {
	if a.config.MayImpersonate == nil || !a.config.MayImpersonate(ctx, app, user) {
		of := "no AppProject of an Application on the workload cluster names it"
		if app != "" {
			of = "the AppProject of Application " + strings.ReplaceAll(app, "_", "/") + " on the workload cluster does not name it"
		}
		return cannotImpersonate(fmt.Sprintf("%s in %s: %s", of, SettingImpersonation, user))
	}
	return nil
}
