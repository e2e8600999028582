package resource

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/argocd-agent/argocd-agent/internal/audit"
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

// Callers is what an Agent does with the caller of a request.
type Callers string

const (
	CallersIgnored      Callers = "ignore"      // nothing, except for its own audit log
	CallersRecorded     Callers = "record"      // the API server records the caller in its audit log
	CallersImpersonated Callers = "impersonate" // and requests of users are executed with their permissions
)

// SettingCallers is the name of this setting.
const SettingCallers = "resource-proxy-callers"

// FromKubeconfig is the source of callers that are users: the certificate in a kubeconfig that the hub issued for a user.
const FromKubeconfig = "kubeconfig"

// Extra fields of the impersonated user, which the API server writes to its audit log.
const (
	callerExtra     = "Impersonate-Extra-Argocd-Agent-Caller"
	callerFromExtra = "Impersonate-Extra-Argocd-Agent-Caller-From"
	impersonateTeam = "Impersonate-Group"
)

// identity returns the headers with which the API server executes and records a request. Without them it has the permissions
// of the agent.
func (a *Agent) identity(ctx context.Context, v *agentRequest) (http.Header, *Status) {
	header, caller := http.Header{}, v.audited.caller
	user := v.audited.impersonates
	if a.config.Callers == CallersImpersonated && caller.From == FromKubeconfig {
		switch {
		case user != "":
			return nil, callersDecide("a user cannot impersonate a ServiceAccount, because requests of users have their own permissions")
		case caller.User == "" || strings.HasPrefix(caller.User, systemPrefix):
			return nil, callersDecide(fmt.Sprintf("requests of users have their own permissions, and %q of the hub is not a user of the workload cluster", caller.User))
		}
		user, v.audited.impersonates = caller.User, caller.User
		for _, group := range caller.Groups {
			if !strings.HasPrefix(group, systemPrefix) { // those of the workload cluster decide
				header.Add(impersonateTeam, headerText(group))
			}
		}
	}
	if a.config.Callers == CallersRecorded || a.config.Callers == CallersImpersonated {
		if user == "" {
			own, err := a.config.User(ctx)
			if err != nil {
				return nil, badGateway("the agent cannot record the caller, because it does not know its own user name: " + err.Error())
			}
			user = own
		}
		header.Set(callerExtra, headerText(cmp.Or(caller.User, audit.UnknownCaller)))
		if caller.From != "" {
			header.Set(callerFromExtra, headerText(caller.From))
		}
	}
	if user != "" {
		header.Set(impersonateUser, headerText(user))
	}
	return header, nil
}

// systemPrefix is the prefix of users and groups that Kubernetes defines for each cluster.
const systemPrefix = "system:"

func callersDecide(why string) *Status {
	s := newStatus(http.StatusForbidden, "Forbidden", fmt.Sprintf("the request is refused: %s (the agent's setting %s decides)", why, SettingCallers))
	s.setting = SettingCallers
	return s
}

// headerText returns a text as the value of a header. A text that cannot be one is escaped, so that it names no other user.
func headerText(s string) string {
	if !utf8.ValidString(s) || !httpguts.ValidHeaderFieldValue(s) || strings.TrimSpace(s) != s {
		return url.QueryEscape(s)
	}
	return s
}
