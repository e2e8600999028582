package policy

import (
	"slices"
)

// Upgrade is a request of the hub to run another image of the agent.
type Upgrade struct {
	Repository string // of the image
	Version    string // which is also the tag
	Digest     string // if empty, the tag decides
	Older      bool   // the version is older than the running one, or they cannot be compared
}

// versions returns the patterns of versions, or nil.
func (c *compiled) versions() []string {
	if c.spec.Upgrade == nil {
		return nil
	}
	return c.spec.Upgrade.Versions
}

// AllowsUpgrades returns why no upgrade is allowed; nil: some are.
func (p *Policy) AllowsUpgrades() *ViolationError {
	if slices.ContainsFunc(p.policies, func(c compiled) bool { return c.spec.Upgrade != nil }) {
		return nil
	}
	return &ViolationError{Rule: "upgrade", Reason: "no AgentPolicy has spec.upgrade"}
}

// Upgrade returns why the agent must not run an image; nil: it can. Without spec.upgrade in an AgentPolicy, it cannot.
func (p *Policy) Upgrade(u Upgrade) *ViolationError {
	for _, c := range p.policies {
		limit := c.spec.Upgrade
		switch {
		case limit == nil:
		case u.Repository != limit.Repository:
			return c.violation("upgrade.repository", "the image is of repository %s, only %s is allowed", u.Repository, limit.Repository)
		case limit.Digests != nil && !slices.Contains(limit.Digests, u.Digest):
			return c.violation("upgrade.digests", "digest %q is not allowed", u.Digest)
		case limit.Digests == nil && u.Digest != "" && (limit.Versions != nil || !limit.Downgrade):
			return c.violation("upgrade.digests", "digest %s can name an image of any version, also an older one: list it in digests", u.Digest)
		case !allows(limit.Versions, u.Version):
			return c.violation("upgrade.versions", "version %s is not allowed", u.Version)
		case u.Older && !limit.Downgrade:
			return c.violation("upgrade.downgrade", "version %s is not newer than the running one", u.Version)
		}
	}
	return p.AllowsUpgrades()
}
