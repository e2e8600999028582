package wire

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// limit is the rule of one field. A string has a rule, a list has a number of entries.
type limit struct {
	str      *rule
	size     int    // of bytes, at most
	hash     bool   // bytes of a 128-bit number; absent: zero
	entries  int    // of a list, at most
	number   uint64 // at most
	required bool   // a nested message must be there
}

// table has the limits of fields by name. A test proves that each string, each field of bytes and each list has one.
var table = map[protoreflect.FullName]limit{
	"Hello.cluster_uid":  {str: &uid},
	"Hello.mode":         {str: &shortToken},
	"Hello.mapping":      {str: &shortToken},
	"Hello.namespace":    {str: &namespaceName},
	"Hello.version":      {str: &buildVersion},
	"Hello.capabilities": {str: &capability, entries: MaxCapabilities},
	"Hello.seen":         {entries: MaxScopes},
	"Hello.facts":        {entries: engine.MaxFacts},
	"Fact.key":           {str: &factKey},
	"Fact.value":         {str: &factValue},

	"Welcome.agent":          {str: &agentName},
	"Welcome.mode":           {str: &shortToken},
	"Welcome.mapping":        {str: &shortToken},
	"Welcome.hub_namespace":  {str: &namespaceName},
	"Welcome.argo_namespace": {str: &namespaceName},
	"Welcome.server_url":     {str: &address},
	"Welcome.principal_uid":  {str: &uid},
	"Welcome.version":        {str: &buildVersion},
	"Welcome.protocol":       {number: maxVersion},
	"Welcome.projection":     {number: maxVersion},
	"Welcome.capabilities":   {str: &capability, entries: MaxCapabilities},
	"Welcome.seen":           {entries: MaxScopes},
	"Welcome.instance_label": {str: &labelKey},
	"Welcome.hub_generation": {number: maxGeneration},

	"Range.min":          {number: maxVersion},
	"Range.max":          {number: maxVersion},
	"Store.uid":          {str: &uid},
	"HistoryMark.record": {str: &uid},
	"Seen.scope":         {str: &scopeName},

	"Roots.items": {entries: MaxScopes},
	"Roots.same":  {entries: MaxScopes},
	"Same.items":  {entries: MaxScopes},
	"Equal.sum":   {hash: true},
	"Equal.seen":  {entries: MaxScopes},
	"Root.scope":  {str: &scopeName},
	"Root.sum":    {hash: true},

	"Ask.scope":       {str: &scopeName},
	"Ask.prefixes":    {size: 8, entries: MaxPrefixes},
	"Answer.scope":    {str: &scopeName},
	"Answer.branches": {entries: MaxPrefixes},
	"Branch.prefix":   {size: 8},
	"Branch.children": {size: 256},
	"Branch.sums":     {size: 256 * 16},
	"Branch.hashes":   {entries: MaxListed},
	"Branch.versions": {size: MaxListed * 16},
	"Want.scope":      {str: &scopeName},
	"Want.hashes":     {entries: MaxHashes},

	"Delta.scope":            {str: &scopeName},
	"Delta.items":            {entries: MaxItems},
	"Delta.Item.key":         {required: true},
	"Delta.Item.version":     {hash: true},
	"Delta.Item.content":     {size: MaxContent},
	"Delta.Item.extra":       {size: MaxExtra},
	"Delta.Item.deleted_uid": {str: &uid},
	"Key.namespace":          {str: &namespaceName},
	"Key.name":               {str: &objectName},

	"Ack.scope":                   {str: &scopeName},
	"Ack.items":                   {entries: MaxItems},
	"Ack.Item.key":                {required: true},
	"Ack.Item.version":            {hash: true},
	"Ack.Item.code":               {str: &shortToken},
	"Ack.Item.message":            {str: &messageText},
	"Ack.Item.retry_after_millis": {number: MaxRetryMillis},
	"Ack.Item.handled_millis":     {number: MaxRetryMillis},

	"Finished.scope":   {str: &scopeName},
	"Finished.key":     {required: true},
	"Finished.version": {hash: true},

	// Held and Confirm may be about a store. Then they have no scope.
	"Held.scope":  {str: &shortToken},
	"Held.id":     {str: &shortToken},
	"Held.reason": {str: &messageText},
	"Held.sample": {entries: MaxSample},
	"Held.cause":  {str: &shortToken},

	"WriteOutage.reason": {str: &messageText},

	"ApplicationEvents.items":          {entries: engine.MaxApplicationEvents},
	"ApplicationEvent.key":             {required: true},
	"ApplicationEvent.application_uid": {str: &uid},
	"ApplicationEvent.uid":             {str: &uid},
	"ApplicationEvent.type":            {str: &shortToken},
	"ApplicationEvent.reason":          {str: &eventReason},
	"ApplicationEvent.message":         {str: &messageText},
	"ApplicationEvent.component":       {str: &eventReason},
	"ApplicationEvent.count":           {number: math.MaxInt32},

	"UpgradeState.id":        {str: &shortToken},
	"UpgradeState.phase":     {str: &shortToken},
	"UpgradeState.message":   {str: &messageText},
	"Upgrade.id":             {str: &shortToken},
	"Upgrade.version":        {str: &uid},
	"Upgrade.repository":     {str: &tunnelToken},
	"Upgrade.digest":         {str: &uid},
	"Upgrade.timeout_millis": {number: MaxRetryMillis},

	"Confirm.scope": {str: &shortToken},
	"Confirm.id":    {str: &shortToken},

	"Open.token":             {str: &tunnelToken},
	"Open.target":            {str: &tunnelToken},
	"Bye.code":               {str: &shortToken},
	"Bye.message":            {str: &messageText},
	"Bye.retry_after_millis": {number: MaxRetryMillis},
}

// schema has the limits of a message by field number. Unused numbers are nil.
type schema []*field

// field is one field of a schema.
type field struct {
	limit
	name    string
	wire    protowire.Type
	list    bool
	message schema // of a nested message
}

const protoPrefix = "argocdagent.v1." // of the full names of messages

// newSchema joins a message of sync.proto with the table.
func newSchema(m protoreflect.MessageDescriptor) schema {
	var s schema
	for i := range m.Fields().Len() {
		d := m.Fields().Get(i)
		f := &field{limit: table[d.FullName()[len(protoPrefix):]], name: string(d.Name()), list: d.IsList()}
		switch d.Kind() {
		case protoreflect.StringKind, protoreflect.BytesKind:
			f.wire = protowire.BytesType
		case protoreflect.MessageKind:
			f.wire, f.message = protowire.BytesType, newSchema(d.Message())
		case protoreflect.Fixed64Kind:
			f.wire = protowire.Fixed64Type
		default:
			f.wire = protowire.VarintType
		}
		for len(s) <= int(d.Number()) {
			s = append(s, nil)
		}
		s[d.Number()] = f
	}
	return s
}
