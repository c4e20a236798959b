{{- define "milepost.fullname" -}}
{{- if contains "milepost" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-milepost" (.Release.Name | trunc 41 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "milepost.selectorLabels" -}}
app.kubernetes.io/name: milepost
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "milepost.labels" -}}
{{ include "milepost.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "milepost.podLabels" -}}
{{- $own := include "milepost.labels" . | fromYaml -}}
{{- range $key, $value := .Values.podLabels -}}
{{- if hasKey $own $key -}}
{{- fail (printf "podLabels must not set %s: the chart does" $key) -}}
{{- end -}}
{{- end -}}
{{- merge $own .Values.podLabels | toYaml -}}
{{- end -}}

{{- define "milepost.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "milepost.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "milepost.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* The stores file. What the values leave out is written out, so that the file says all there is to know. */ -}}
{{- define "milepost.storesFile" -}}
{{- if not .Values.stores -}}
{{- fail "stores is empty, and runs need a bucket: set at least stores.default.bucket (see the chart's values.yaml)" -}}
{{- end -}}
stores:
{{- range $name, $store := .Values.stores }}
  {{ $name | quote }}:
    bucket: {{ $store.bucket | quote }}
    {{- with $store.endpoint }}
    endpoint: {{ . | quote }}
    {{- end }}
    prefix: {{ $store.prefix | default "" | quote }}
    region: {{ $store.region | default "us-east-1" | quote }}
    allowedNamespaces:
    {{- range $store.allowedNamespaces | default (list "*") }}
    - {{ . | quote }}
    {{- end }}
    {{- with $store.credentials }}
    credentials:
      secretName: {{ .secretName | quote }}
    {{- end }}
    isolation: {{ $store.isolation | default "required" | quote }}
    {{- with $store.recoverFrom }}
    recoverFrom:
    {{- range . }}
    - {{ . | quote }}
    {{- end }}
    {{- end }}
{{- end }}
{{- end -}}

{{- /* What the operator does with the objects of runs: the same for a ClusterRole and for a Role per namespace. */ -}}
{{- define "milepost.runRules" -}}
- apiGroups: [milepost.dev]
  resources: [agentruns]
  verbs: [get, list, watch]
- apiGroups: [milepost.dev]
  resources: [agentruns/status]
  verbs: [get, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{- define "milepost.subjects" -}}
- kind: ServiceAccount
  name: {{ include "milepost.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{- /* One egress rule to the stores: the ports that their endpoints name, at the given addresses or any. */ -}}
{{- define "milepost.storeEgress" -}}
{{- $ports := list -}}
{{- range .Values.stores -}}
{{- $url := urlParse (.endpoint | default "https://s3") -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) -}}
{{- $ports = append $ports ($port | default (ternary "80" "443" (eq $url.scheme "http"))) -}}
{{- end -}}
- ports:
  {{- range $ports | uniq | sortAlpha }}
  - {port: {{ . }}, protocol: TCP}
  {{- end }}
  {{- with .Values.networkPolicy.stores.cidrs }}
  to:
  {{- range . }}
  - ipBlock: {cidr: {{ . }}}
  {{- end }}
  {{- end }}
{{- end -}}

{{- define "milepost.dnsEgress" -}}
- ports:
  - {port: 53, protocol: UDP}
  - {port: 53, protocol: TCP}
{{- end -}}
