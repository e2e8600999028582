package kind

import (
	"regexp"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Roles of an autonomous agent's project grant permissions on the hub. So unknown fields are not replicated: the spoke
// leaves out what this release does not know, and the hub rejects it.

// roleFields are replicated. Tokens are not: each Argo CD signs its own.
var roleFields = []string{"name", "description", "policies", "groups"}

var (
	roleName     = regexp.MustCompile(`^[a-zA-Z0-9]([-_a-zA-Z0-9]*[a-zA-Z0-9])?$`)
	policyObject = regexp.MustCompile(`^[*\w.-]+(/[*\w.-]+)?$`)
	policyAction = regexp.MustCompile(`^(get|create|update|delete|sync|override|\*|(action|update|delete)/[^",\s]*)$`)
)

var projectResources = []string{"applications", "applicationsets", "logs", "exec", "clusters", "repositories"}

// policy is a line of a role: p, subject, resource, action, object, effect.
type policy struct{ subject, resource, action, object, effect string }

func (p policy) String() string {
	return strings.Join([]string{"p", p.subject, p.resource, p.action, p.object, p.effect}, ", ")
}

// parsePolicy parses a policy of a project's role by Argo CD's rules. The returned object is without the project's
// name.
func parsePolicy(line, project, role string) (policy, bool) {
	parts := strings.Split(line, ",")
	if len(parts) != 6 {
		return policy{}, false
	}
	for i := range parts {
		parts[i] = strings.Trim(parts[i], " ")
	}
	object, within := strings.CutPrefix(parts[4], project+"/")
	p := policy{parts[1], parts[2], parts[3], object, parts[5]}
	ok := parts[0] == "p" && p.subject == "proj:"+project+":"+role && slices.Contains(projectResources, p.resource) &&
		policyAction.MatchString(p.action) && within && policyObject.MatchString(object) &&
		(p.effect == "allow" || p.effect == "deny")
	return p, ok
}

// policyForHub rewrites a policy for the project's replica on the hub, where its Applications are in the agent's
// namespace.
func policyForHub(p policy, role string, w *Env, hubProject string) policy {
	p.subject = "proj:" + hubProject + ":" + role
	if p.resource == "applications" || p.resource == "logs" || p.resource == "exec" {
		if namespace, app, ok := strings.Cut(p.object, "/"); ok {
			p.object = app
			if namespace != w.SpokeArgoNamespace {
				p.object = namespace + "." + app
			}
		}
		if w.Agent.HubNamespace != w.HubArgoNamespace {
			p.object = w.Agent.HubNamespace + "/" + p.object
		}
	}
	p.object = hubProject + "/" + p.object
	return p
}

// rolesForHub rewrites the roles of a spoke's project. It leaves out what Argo CD would reject.
func rolesForHub(list []byte, project string, w *Env) []byte {
	entries, _ := rawjson.Elements(list)
	hubProject := ProjectName(w.Agent.Name, project)
	var roles [][]byte
	for _, e := range entries {
		role := slices.DeleteFunc(members(e), func(m rawjson.Member) bool { return !slices.Contains(roleFields, m.Key) })
		name := rawjson.Text(role.Get("name"))
		if !roleName.MatchString(name) {
			continue
		}
		lines, _ := rawjson.Strings(role.Get("policies"))
		var policies []string
		for _, line := range lines {
			if p, ok := parsePolicy(line, project, name); ok {
				if line = policyForHub(p, name, w, hubProject).String(); !slices.Contains(policies, line) {
					policies = append(policies, line)
				}
			}
		}
		groups, _ := rawjson.Strings(role.Get("groups"))
		groups = slices.DeleteFunc(groups, func(g string) bool { return !validGroup(g) })
		setStrings(&role, "policies", policies)
		setStrings(&role, "groups", groups)
		roles = append(roles, role.Bytes())
	}
	if len(roles) == 0 {
		return nil
	}
	return rawjson.Join(roles)
}

// checkRoles rejects roles that a correct agent would not send.
func checkRoles(list []byte, project string) error {
	if rawjson.IsNull(list) {
		return nil
	}
	entries, err := rawjson.Elements(list)
	if err != nil {
		return reject(engine.Invalid, "roles of project %s: %v", project, err)
	}
	for _, e := range entries {
		role, err := rawjson.Split(e)
		if err != nil {
			return reject(engine.Invalid, "a role of project %s: %v", project, err)
		}
		for _, m := range role {
			if !slices.Contains(roleFields, m.Key) {
				return reject(engine.NotAllowed, "a role of project %s has the field %.80q", project, m.Key)
			}
		}
		name := rawjson.Text(role.Get("name"))
		if !roleName.MatchString(name) {
			return reject(engine.Invalid, "%.80q is not a name that a role can have", name)
		}
		policies, ok := textList(role.Get("policies"))
		for _, line := range policies {
			if _, valid := parsePolicy(line, project, name); !valid {
				return reject(engine.NotAllowed, "policy %.200q of project %s is not one for that project", line, project)
			}
		}
		groups, ok2 := textList(role.Get("groups"))
		if !ok || !ok2 || slices.ContainsFunc(groups, func(g string) bool { return !validGroup(g) }) {
			return reject(engine.Invalid, "role %s of project %s is malformed", name, project)
		}
	}
	return nil
}

func textList(b []byte) ([]string, bool) {
	if rawjson.IsNull(b) {
		return nil, true
	}
	return rawjson.Strings(b)
}

// validGroup implements Argo CD's rule for group names: they are part of policy lines, so they must not end the line or
// the field.
func validGroup(group string) bool {
	name := group
	if len(name) > 1 && strings.HasPrefix(name, `"`) && strings.HasSuffix(name, `"`) {
		name = name[1 : len(name)-1]
	} else if strings.Contains(name, ",") {
		return false
	}
	return name != "" && strings.TrimSpace(group) == group && !strings.ContainsAny(name, "\"\n\r\t")
}
