package agentrows

// Row is one agent on the page. Times are Unix seconds.
type Row struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Urgency int    `json:"urgency,omitempty"` // sort order by need for attention
	Refused string `json:"refused,omitempty"` // why the agent is refused or not registered

	Connected bool  `json:"connected,omitempty"`
	Since     int64 `json:"since,omitempty"` // start of the connected or disconnected state

	Applications int64  `json:"applications"`
	Diverged     int64  `json:"diverged,omitempty"`
	Unacked      int64  `json:"unacked,omitempty"`   // time of the oldest unacknowledged change
	Confirmed    int64  `json:"confirmed,omitempty"` // last time both sides were in sync
	Skew         *int64 `json:"skew,omitempty"`      // seconds that the clock of the agent is ahead
	Expires      int64  `json:"expires,omitempty"`   // of the latest certificate
	Version      string `json:"version,omitempty"`

	// Details of an expanded row.
	Mode        string      `json:"mode,omitempty"`
	Mapping     string      `json:"mapping,omitempty"`
	Namespace   string      `json:"namespace,omitempty"`
	Kinds       string      `json:"kinds,omitempty"`
	Allow       string      `json:"allow,omitempty"`
	Owners      string      `json:"owners,omitempty"`
	Labels      string      `json:"labels,omitempty"`
	Shared      bool        `json:"shared,omitempty"`
	Created     int64       `json:"created,omitempty"`
	Principal   string      `json:"principal,omitempty"`
	Protocol    string      `json:"protocol,omitempty"`
	Cluster     string      `json:"cluster,omitempty"`
	Fingerprint string      `json:"fingerprint,omitempty"`
	Holds       []Hold      `json:"holds,omitempty"`
	Pending     string      `json:"pending,omitempty"` // counts of pending items
	Conditions  []Condition `json:"conditions,omitempty"`
}

// Limited returns what a user of one Application of the agent may see. Texts of the Agent can name other Applications.
func (r Row) Limited() Row {
	out := Row{Name: r.Name, State: r.State, Urgency: r.Urgency, Connected: r.Connected, Since: r.Since, Confirmed: r.Confirmed, Unacked: r.Unacked,
		Skew: r.Skew, Version: r.Version, Mode: r.Mode, Mapping: r.Mapping, Applications: r.Applications, Diverged: r.Diverged}
	for _, c := range r.Conditions {
		out.Conditions = append(out.Conditions, Condition{Type: c.Type, Status: c.Status, Since: c.Since, Reason: c.Reason})
	}
	return out
}

// Hold waits for a confirmation.
type Hold struct {
	Description string `json:"description"`
	Reason      string `json:"reason,omitempty"`
	ID          string `json:"id,omitempty"` // if empty, it cannot be confirmed
}

// Condition is a condition of an Agent.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Since   int64  `json:"since,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}
